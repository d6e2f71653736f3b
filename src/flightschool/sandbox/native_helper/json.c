/* A small JSON reader: decodes strings in place, which never makes them longer. Lone surrogates U+DC80 to U+DCFF stand
 * for single bytes, as they do on the Python side. */
#include "helper.h"

#include <stdlib.h>
#include <string.h>

#define MOST_DEPTH 16

struct reader {
    char *at, *end;
};

static void skip_space(struct reader *reader) {
    while (reader->at < reader->end && strchr(" \t\r\n", *reader->at) && *reader->at) reader->at++;
}

static int hex4(const char *at, unsigned *value) {
    *value = 0;
    for (int place = 0; place < 4; place++) {
        char c = at[place];
        unsigned digit;
        if (c >= '0' && c <= '9') digit = (unsigned)(c - '0');
        else if (c >= 'a' && c <= 'f') digit = (unsigned)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F') digit = (unsigned)(c - 'A') + 10;
        else return -1;
        *value = *value << 4 | digit;
    }
    return 0;
}

static char *encode(char *into, unsigned point) {
    if (point < 0x80) {
        *into++ = (char)point;
    } else if (point < 0x800) {
        *into++ = (char)(0xC0 | point >> 6);
        *into++ = (char)(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        *into++ = (char)(0xE0 | point >> 12);
        *into++ = (char)(0x80 | (point >> 6 & 0x3F));
        *into++ = (char)(0x80 | (point & 0x3F));
    } else {
        *into++ = (char)(0xF0 | point >> 18);
        *into++ = (char)(0x80 | (point >> 12 & 0x3F));
        *into++ = (char)(0x80 | (point >> 6 & 0x3F));
        *into++ = (char)(0x80 | (point & 0x3F));
    }
    return into;
}

static char *read_escape(struct reader *reader, char *into) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    unsigned point, low;
    if (reader->at >= reader->end) return NULL;
    char kind = *reader->at++;
    const char *known = kind ? strchr(from, kind) : NULL;
    if (known) {
        *into++ = to[known - from];
        return into;
    }
    if (kind != 'u' || reader->end - reader->at < 4 || hex4(reader->at, &point)) return NULL;
    reader->at += 4;
    if (point >= 0xDC80 && point <= 0xDCFF) {
        *into++ = (char)(point - 0xDC00);
        return into;
    }
    if (point >= 0xD800 && point < 0xDC00 && reader->end - reader->at >= 6 && reader->at[0] == '\\' &&
        reader->at[1] == 'u' && !hex4(reader->at + 2, &low) && low >= 0xDC00 && low < 0xE000) {
        reader->at += 6;
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    return encode(into, point);
}

/* The place of the closing quote gets the NUL, so that text needs no memory of its own. */
static int read_string(struct reader *reader, char **text, size_t *size) {
    if (reader->at >= reader->end || *reader->at != '"') return -1;
    char *into = ++reader->at;
    *text = into;
    while (reader->at < reader->end && *reader->at != '"') {
        if (*reader->at == '\\') {
            reader->at++;
            into = read_escape(reader, into);
            if (!into) return -1;
        } else {
            *into++ = *reader->at++;
        }
    }
    if (reader->at >= reader->end) return -1;
    reader->at++;
    *into = 0;
    *size = (size_t)(into - *text);
    return 0;
}

static struct json *read_value(struct reader *reader, int depth);

static int read_children(struct reader *reader, struct json *parent, char closing, int depth) {
    struct json **place = &parent->child;
    reader->at++;
    skip_space(reader);
    if (reader->at < reader->end && *reader->at == closing) return reader->at++, 0;
    while (reader->at < reader->end) {
        char *key = NULL;
        size_t size;
        if (closing == '}') {
            skip_space(reader);
            if (read_string(reader, &key, &size)) return -1;
            skip_space(reader);
            if (reader->at >= reader->end || *reader->at++ != ':') return -1;
        }
        struct json *child = read_value(reader, depth + 1);
        if (!child) return -1;
        child->key = key;
        *place = child;
        place = &child->next;
        skip_space(reader);
        if (reader->at >= reader->end) return -1;
        char c = *reader->at++;
        if (c == closing) return 0;
        if (c != ',') return -1;
    }
    return -1;
}

static int read_word(struct reader *reader, struct json *value) {
    static const struct {
        const char *word;
        enum kind kind;
    } words[] = {{"null", J_NULL}, {"true", J_TRUE}, {"false", J_FALSE}};
    for (int place = 0; place < 3; place++) {
        size_t size = strlen(words[place].word);
        if ((size_t)(reader->end - reader->at) >= size && !memcmp(reader->at, words[place].word, size)) {
            reader->at += size;
            value->kind = words[place].kind;
            return 0;
        }
    }
    char digits[64];
    size_t size = 0;
    while (size < sizeof digits - 1 && reader->at + size < reader->end && reader->at[size] &&
           strchr("+-.0123456789eE", reader->at[size])) {
        digits[size] = reader->at[size];
        size++;
    }
    digits[size] = 0;
    char *stop;
    value->kind = J_NUMBER;
    value->number = strtod(digits, &stop);
    if (!size || *stop) return -1;
    reader->at += size;
    return 0;
}

static struct json *read_value(struct reader *reader, int depth) {
    struct json *value = calloc(1, sizeof *value);
    if (!value) return NULL;
    int wrong = depth > MOST_DEPTH;
    skip_space(reader);
    if (wrong || reader->at >= reader->end) {
        wrong = 1;
    } else if (*reader->at == '"') {
        value->kind = J_TEXT;
        wrong = read_string(reader, &value->text, &value->size);
    } else if (*reader->at == '{' || *reader->at == '[') {
        value->kind = *reader->at == '{' ? J_TABLE : J_LIST;
        wrong = read_children(reader, value, *reader->at == '{' ? '}' : ']', depth);
    } else {
        wrong = read_word(reader, value);
    }
    if (!wrong) return value;
    json_free(value);
    return NULL;
}

struct json *json_read(char *text, size_t size) {
    struct reader reader = {text, text + size};
    struct json *value = read_value(&reader, 0);
    if (!value) return NULL;
    skip_space(&reader);
    if (reader.at == reader.end && value->kind == J_TABLE) return value;
    json_free(value);
    return NULL;
}

void json_free(struct json *value) {
    while (value) {
        struct json *next = value->next;
        json_free(value->child);
        free(value);
        value = next;
    }
}

const struct json *json_get(const struct json *table, const char *key) {
    for (const struct json *child = table->child; child; child = child->next)
        if (child->key && !strcmp(child->key, key)) return child;
    return NULL;
}

double json_number(const struct json *table, const char *key, double otherwise) {
    const struct json *value = json_get(table, key);
    return value && value->kind == J_NUMBER ? value->number : otherwise;
}

const char *json_text(const struct json *table, const char *key) {
    const struct json *value = json_get(table, key);
    return value && value->kind == J_TEXT && strlen(value->text) == value->size ? value->text : NULL;
}

/* Bytes that are no ASCII are written as the lone surrogates that stand for them. */
size_t json_quote(char *into, size_t room, const char *text) {
    static const char digits[] = "0123456789abcdef";
    size_t used = 0;
    into[used++] = '"';
    for (const unsigned char *at = (const unsigned char *)text; *at && used + 8 < room; at++) {
        if (*at >= 0x20 && *at < 0x7F && *at != '"' && *at != '\\') {
            into[used++] = (char)*at;
            continue;
        }
        memcpy(into + used, *at >= 0x80 ? "\\udc" : "\\u00", 4);
        into[used + 4] = digits[*at >> 4];
        into[used + 5] = digits[*at & 15];
        used += 6;
    }
    into[used++] = '"';
    into[used] = 0;
    return used;
}
