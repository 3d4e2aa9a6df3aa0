/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library to be found. Built with several SONAMEs; without COMPLETE it lacks a symbol,
 * and with NEEDY it needs a library that is then taken away.
 */
int find_probe(void);
int find_probe(void)
{
    return 7;
}

#ifdef COMPLETE
int find_second(void);
int find_second(void)
{
    return 2;
}
#endif

#ifdef NEEDY
int find_needed(void);
int find_needs(void);
int find_needs(void)
{
    return find_needed();
}
#endif

#ifdef NEEDED
int find_needed(void);
int find_needed(void)
{
    return 1;
}
#endif
