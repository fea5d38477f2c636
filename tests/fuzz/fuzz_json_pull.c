/* fuzz_json_pull.c -- any bytes give events or one clean error, and skipping agrees with reading.
 *
 * The first byte chooses the longest string that is accepted, the rest is the document. It is read
 * three times: event by event, as one skipped value, and with every second key's value skipped. A
 * document that reads to its end must also be skipped to its end. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_pull.h"
#include "base/text_util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static tsr_json *open_text(const uint8_t *data, size_t size, size_t max_string, tsr_err *err)
{
    tsr_json *j = NULL;

    *err = (tsr_err){0};
    must(tsr_json_open_memory(&j, (const char *)data, size, max_string, err) == TSR_OK);
    return j;
}

/* Reads to the end; true when the document is good. */
static bool read_all(const uint8_t *data, size_t size, size_t max_string, bool skip_some)
{
    tsr_err err;
    tsr_json *j = open_text(data, size, max_string, &err);
    tsr_json_event e;
    size_t events = 0, len;
    uint64_t value;

    do {
        e = tsr_json_next(j);
        must(events++ <= size + 1);
        if (e == TSR_JSON_KEY || e == TSR_JSON_STRING || e == TSR_JSON_NUMBER) {
            const char *text = tsr_json_text(j, &len);
            must(text[len] == 0 && tsr_utf8_valid(text, len));
            must(len <= (max_string < 64 ? 64 : max_string));
        }
        if (e == TSR_JSON_NUMBER)
            (void)tsr_json_u64(j, &value);
        if (skip_some && e == TSR_JSON_KEY && events % 2 == 0)
            (void)tsr_json_skip(j);
    } while (e != TSR_JSON_ERROR && e != TSR_JSON_END);
    must(tsr_json_next(j) == e);
    must((tsr_json_status(j) == TSR_OK) == (e == TSR_JSON_END));
    must((err.msg[0] != 0) == (e == TSR_JSON_ERROR) && tsr_utf8_valid(err.msg, strlen(err.msg)));
    tsr_json_close(j);
    return e == TSR_JSON_END;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tsr_err err;
    tsr_json *j;
    size_t max_string;
    bool good;

    if (size == 0)
        return 0;
    max_string = (size_t)data[0] * 4;
    data++;
    size--;
    good = read_all(data, size, max_string, false);
    if (good)
        must(read_all(data, size, max_string, true));
    j = open_text(data, size, max_string, &err);
    if (tsr_json_skip(j) && good)
        must(tsr_json_next(j) == TSR_JSON_END);
    must(!good || tsr_json_status(j) == TSR_OK);
    tsr_json_close(j);
    return 0;
}
