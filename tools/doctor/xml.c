/* SPDX-License-Identifier: Apache-2.0 */
/* XML documents in the text. See xml.h. */
#include "xml.h"

#include "lines.h"

#ifdef MOTET_DOCTOR_XML
#include <libxml/xmlreader.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* What is asked of libxml2; its own header declares the types. */
#define XML_FUNCTIONS(F)                \
    F(xmlReaderForMemory)               \
    F(xmlTextReaderRead)                \
    F(xmlTextReaderNodeType)            \
    F(xmlTextReaderConstLocalName)      \
    F(xmlTextReaderConstValue)          \
    F(xmlTextReaderDepth)               \
    F(xmlTextReaderIsEmptyElement)      \
    F(xmlTextReaderMoveToNextAttribute) \
    F(xmlTextReaderCurrentNode)         \
    F(xmlGetLineNo)                     \
    F(xmlFreeTextReader)

struct xml {
#define XML_MEMBER(name) __typeof__(&(name)) name;
    XML_FUNCTIONS(XML_MEMBER)
#undef XML_MEMBER
    void *handle;
};

static bool load(struct xml *x)
{
    /* the reader's functions are the same in both; only the structs differ */
    static const char *const names[] = { "libxml2.so.2", "libxml2.so.16" };
    bool all = true;

    /* it stays mapped: what it keeps for later calls would be lost otherwise */
    for (size_t i = 0; x->handle == NULL && i < sizeof(names) / sizeof(*names); i++)
        x->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (x->handle == NULL)
        return false;
#define XML_LOAD(name)                            \
    *(void **)&x->name = dlsym(x->handle, #name); \
    all = all && x->name != NULL;
    XML_FUNCTIONS(XML_LOAD)
#undef XML_LOAD
    return all;
}

/* ---- a walk ---- */

struct walk {
    struct doctor *d;
    const struct xml *xml;
    xmlTextReaderPtr reader;
    void (*visit)(struct doctor *d, void *arg, const struct dr_xml *event);
    void *arg;
    uint32_t first, last;
    uint32_t line;       /* of the element                           */
    const char *element; /* the innermost that is open, for its text */
};

static void tell(struct walk *w, enum dr_xml_what what, const char *name,
        const char *value, int depth)
{
    const struct dr_xml event = { what, name, value, depth, w->line };

    w->visit(w->d, w->arg, &event);
}

/* A copy without what character references may have smuggled in: it is printed. */
static const char *clean(const struct walk *w, const xmlChar *bytes)
{
    const char *text = (const char *)bytes;
    const size_t length = text != NULL ? strlen(text) : 0;
    char *out = dr_alloc(w->d, length + 8);
    bool cut;

    if (length > 0)
        (void)dr_clean(text, length, out, length + 8, &cut);
    return out;
}

static const char *name_of(const struct walk *w)
{
    return clean(w, w->xml->xmlTextReaderConstLocalName(w->reader));
}

static const char *value_of(const struct walk *w)
{
    return clean(w, w->xml->xmlTextReaderConstValue(w->reader));
}

/* The reader is ahead of the node that it shows; the node knows its line. */
static void find_line(struct walk *w)
{
    const long number =
            w->xml->xmlGetLineNo(w->xml->xmlTextReaderCurrentNode(w->reader));

    if (number > 0 && (unsigned long)number <= w->last - w->first)
        w->line = w->first + (uint32_t)number - 1;
}

static void begin_element(struct walk *w, int depth)
{
    const bool empty = w->xml->xmlTextReaderIsEmptyElement(w->reader) == 1;
    const char *name = name_of(w);

    w->element = name;
    find_line(w);
    tell(w, DR_XML_BEGIN, name, "", depth);
    while (w->xml->xmlTextReaderMoveToNextAttribute(w->reader) == 1)
        tell(w, DR_XML_ATTRIBUTE, name_of(w), value_of(w), depth);
    if (empty)
        tell(w, DR_XML_END, name, "", depth);
}

static void text_node(struct walk *w, int depth)
{
    const char *text = value_of(w);

    text += strspn(text, " \t");
    if (*text != 0)
        tell(w, DR_XML_TEXT, w->element, text, depth - 1);
}

/* Visits until the root element ends; false if the document is broken before. */
static bool walk(struct walk *w)
{
    int state;

    while ((state = w->xml->xmlTextReaderRead(w->reader)) == 1) {
        const int type = w->xml->xmlTextReaderNodeType(w->reader);
        const int depth = w->xml->xmlTextReaderDepth(w->reader);

        if (type == XML_READER_TYPE_ELEMENT)
            begin_element(w, depth);
        else if (type == XML_READER_TYPE_TEXT || type == XML_READER_TYPE_CDATA)
            text_node(w, depth);
        else if (type == XML_READER_TYPE_END_ELEMENT)
            tell(w, DR_XML_END, name_of(w), "", depth);
    }
    return state == 0;
}

/* The line after the one that closes the element which line @p first opens. */
static uint32_t document_end(const struct doctor *d, uint32_t first)
{
    const struct dr_source *s = &d->sources[d->lines[first].source];
    const char *at = strchr(d->lines[first].text, '<');
    const uint32_t end = s->first + s->count;
    char close[96];
    uint32_t line = first;

    /* past a declaration and comments, to the root's name */
    while (at != NULL && (at[1] == '?' || at[1] == '!')) {
        at = strchr(at + 1, '<');
        while (at == NULL && ++line < end)
            at = strchr(d->lines[line].text, '<');
    }
    if (at == NULL)
        return end;
    snprintf(close, sizeof(close), "</%.*s>",
            (int)strnlen(at + 1, strcspn(at + 1, " \t/>")), at + 1);
    for (; line < end; line++)
        if (strstr(d->lines[line].text, close) != NULL)
            return line + 1;
    return end;
}

uint32_t dr_xml_walk(struct doctor *d, uint32_t first,
        void (*visit)(struct doctor *d, void *arg, const struct dr_xml *event),
        void *arg)
{
    const uint32_t end = document_end(d, first);
    const char *source = d->sources[d->lines[first].source].name;
    struct walk w = { .d = d,
        .visit = visit,
        .arg = arg,
        .first = first,
        .last = end,
        .line = first,
        .element = "" };
    struct xml xml = { .handle = NULL };
    size_t count = 0;
    char *text;

    if (!load(&xml)) {
        doctor_unread(d, source, "XML: libxml2 is not on this machine");
        return end;
    }
    for (uint32_t i = first; i < end; i++)
        count += d->lines[i].length + 1u;
    text = dr_alloc(d, count + 1);
    count = 0;
    for (uint32_t i = first; i < end; i++) {
        /* what stands before the first '<', a prompt maybe, is no part of it */
        const char *from =
                i == first ? strchr(d->lines[i].text, '<') : d->lines[i].text;

        const size_t length = from != NULL ? strlen(from) : 0;

        if (length > 0)
            memcpy(text + count, from, length);
        count += length;
        text[count++] = '\n';
    }
    w.xml = &xml;
    w.reader = count < INT32_MAX
            ? xml.xmlReaderForMemory(text, (int)count, NULL, NULL,
                      XML_PARSE_NONET | XML_PARSE_NOERROR | XML_PARSE_NOWARNING)
            : NULL;
    if (w.reader == NULL || !walk(&w))
        doctor_unread(d, source,
                "line %u: XML that does not end well; read up to there",
                d->lines[first].number);
    if (w.reader != NULL)
        xml.xmlFreeTextReader(w.reader);
    dlclose(xml.handle);
    return end;
}

#else

uint32_t dr_xml_walk(struct doctor *d, uint32_t first,
        void (*visit)(struct doctor *d, void *arg, const struct dr_xml *event),
        void *arg)
{
    const struct dr_source *s = &d->sources[d->lines[first].source];

    (void)visit, (void)arg;
    doctor_unread(d, s->name, "XML: this command was built without libxml2's headers");
    return s->first + s->count;
}

#endif
