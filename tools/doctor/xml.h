/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XML through libxml2's reader. The library is loaded when a document is met: the command
 * must start where it is not installed. Documents are hostile: nothing is fetched, no
 * entity is expanded, depth is the library's limit (256).
 */
#ifndef MOTET_DOCTOR_XML_H
#define MOTET_DOCTOR_XML_H

#include "doctor.h"

enum dr_xml_what {
    DR_XML_BEGIN,     /* <name                                  */
    DR_XML_ATTRIBUTE, /* name='value', after BEGIN of its element */
    DR_XML_TEXT, /* value between tags, without blanks around it; name is the element's */
    DR_XML_END   /* </name> or />                          */
};

struct dr_xml {
    enum dr_xml_what what;
    const char *name, *value; /* valid during the call; value is "" for BEGIN and END */
    int depth;                /* of the element, 0 for the root                       */
    uint32_t line;            /* index into doctor.lines                              */
};

/**
 * Walk the document that begins at line @p first (the one with the first '<') and ends
 * with the element that is opened there, or with the source's last line. What is wrong
 * with it, or that libxml2 is missing, is said by doctor_unread(); what stands before the
 * fault has been visited.
 * @return the line after the document's last one.
 */
uint32_t dr_xml_walk(struct doctor *d, uint32_t first,
        void (*visit)(struct doctor *d, void *arg, const struct dr_xml *event),
        void *arg);

#endif
