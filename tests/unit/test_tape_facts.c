/* test_tape_facts.c -- what a tape knows of what was recorded: lifetimes, entries, costs, words. */
#include <string.h>

#include "base/alloc.h"
#include "tests/support/tape_fixture.h"

static bool has_entries(const fixture *f, tsr_val v, int32_t steps, int32_t prompts,
                        int32_t pictures)
{
    const tsr_value *x = tsr_tape_value(&f->t, v);

    return x && x->entries.steps == steps && x->entries.prompts == prompts &&
           x->entries.pictures == pictures && x->n == steps * prompts * pictures;
}

/* Rows of time, prompts and pictures meet: each op has the entries that its operands have
 * together, and no more. */
static void entries__of_operands__are_joined(void)
{
    fixture f;
    tsr_val times, prompt, x, row, y, q, square;

    begin(&f);
    times = grid(&f, (tsr_entries){5, 1, 1}, 1);
    prompt = grid(&f, (tsr_entries){1, 2, 1}, 1);
    x = grid(&f, (tsr_entries){1, 1, 3}, 4);
    square = weight(&f, TSR_WEIGHT_MATRIX, 4, (int32_t[]){32, 32, 1, 1});
    CHECK(tsr_op_add(&f.t, &(tsr_add_desc){.x = times, .y = prompt}, &row) == TSR_OK);
    CHECK(has_entries(&f, row, 5, 2, 1));
    CHECK(tsr_tape_step_view(&f.t, times, &row) == TSR_OK && has_entries(&f, row, 1, 1, 1));
    CHECK(tsr_op_conv2d(&f.t, &(tsr_conv_desc){.x = x, .weight = square, .add_channel = row}, &y) ==
          TSR_OK);
    CHECK(has_entries(&f, y, 1, 1, 3));
    CHECK(tsr_op_conv2d(&f.t, &(tsr_conv_desc){.x = x, .weight = square, .add_channel = prompt},
                        &q) == TSR_OK);
    CHECK(has_entries(&f, q, 1, 2, 3));
    CHECK(tsr_op_attention(&f.t, &(tsr_attention_desc){.q = y, .k = prompt, .v = prompt, 4}, &q) ==
          TSR_OK);
    CHECK(has_entries(&f, q, 1, 2, 3));
    CHECK(tsr_op_concat(&f.t, y, q, &q) == TSR_OK && has_entries(&f, q, 1, 2, 3));
    end(&f);
}

static void entries__of_two_lengths__are_refused(void)
{
    fixture f;
    tsr_val two, three, many, v = 0;
    tsr_entries most = {1 << 15, 1 << 15, 2}, none = {1, 0, 1};

    begin(&f);
    two = grid(&f, (tsr_entries){1, 2, 1}, 4);
    three = grid(&f, (tsr_entries){1, 3, 2}, 4);
    CHECK(tsr_op_add(&f.t, &(tsr_add_desc){.x = two, .y = three}, &v) == TSR_E_MODEL);
    CHECK(tsr_op_concat(&f.t, three, two, &v) == TSR_E_MODEL);
    CHECK(tsr_op_attention(&f.t, &(tsr_attention_desc){.q = two, .k = two, .v = three, 4}, &v) ==
          TSR_E_MODEL);
    CHECK(tsr_tape_input_grid(&f.t, &most, (int32_t[]){1, 1, 1}, TSR_F16, "most", &many) ==
          TSR_E_MODEL);
    CHECK(tsr_tape_input_grid(&f.t, &none, (int32_t[]){1, 1, 1}, TSR_F16, "none", &many) ==
          TSR_E_MODEL);
    CHECK(v == 0 && f.t.n_ops == 0);
    end(&f);
}

static void lifetimes__uses__stretch_values_views_and_weights(void)
{
    fixture f;
    tsr_val a, b, table = 0, view;

    begin(&f);
    table = grid(&f, (tsr_entries){3, 1, 2}, 1);
    CHECK(tsr_op_add(&f.t, &(tsr_add_desc){.x = f.x, .y = f.x}, &a) == TSR_OK); /* op 0 */
    tsr_tape_begin_loop(&f.t);
    CHECK(f.t.loop_begin == 1);
    CHECK(tsr_tape_step_view(&f.t, table, &view) == TSR_OK);
    CHECK(is_shape(&f, view, (int32_t[]){2, 1, 1, 32}, TSR_F16));
    CHECK(tsr_op_add(&f.t, &(tsr_add_desc){.x = a, .y = a}, &b) == TSR_OK);       /* op 1 */
    CHECK(tsr_op_add(&f.t, &(tsr_add_desc){.x = view, .y = view}, &b) == TSR_OK); /* op 2 */
    tsr_tape_output(&f.t, b, "out");
    CHECK(f.t.values[a].first == 0 && f.t.values[a].last == 1);
    CHECK(f.t.values[b].first == 2 && f.t.values[b].last == 2 && f.t.values[b].is_output);
    CHECK(strcmp(f.t.values[b].name, "out") == 0);
    CHECK(f.t.values[view].last == 2 && f.t.values[table].last == 2);
    CHECK(f.t.values[f.x].first == 0 && f.t.values[f.x].last == 0);
    end(&f);
}

static void step_view__of_nothing_or_of_a_view__is_refused(void)
{
    fixture f;
    tsr_val v = 0, view;

    begin(&f);
    CHECK(tsr_tape_step_view(&f.t, 0, &v) == TSR_E_INTERNAL);
    CHECK(v == 0);
    CHECK(tsr_tape_step_view(&f.t, f.x, &view) == TSR_OK);
    CHECK(tsr_tape_step_view(&f.t, view, &v) == TSR_E_INTERNAL);
    tsr_tape_output(&f.t, view, NULL);
    CHECK(f.t.values[f.x].is_output);
    end(&f);
}

static void flops__conv_linear_attention__count_multiply_adds_twice(void)
{
    fixture f;
    tsr_val y;

    begin(&f);
    CHECK(tsr_op_conv2d(&f.t, &(tsr_conv_desc){.x = f.x, .weight = f.conv}, &y) == TSR_OK);
    CHECK(tsr_op_flops(&f.t, &f.t.ops[0]) == 2.0 * 2 * 6 * 4 * 16 * 32 * 9);
    CHECK(tsr_op_linear(&f.t,
                        &(tsr_linear_desc){.x = f.x, .x2 = f.x, .weight = f.wide, .geglu = true},
                        &y) == TSR_OK);
    CHECK(tsr_op_flops(&f.t, &f.t.ops[1]) == 2.0 * 2 * 48 * 16 * 64);
    CHECK(tsr_op_attention(
              &f.t, &(tsr_attention_desc){.q = f.x, .k = f.tokens, .v = f.tokens, .n_heads = 2},
              &y) == TSR_OK);
    CHECK(tsr_op_flops(&f.t, &f.t.ops[2]) == 4.0 * 2 * 48 * 48 * 32);
    CHECK(tsr_op_concat(&f.t, f.x, f.x, &y) == TSR_OK);
    CHECK(tsr_op_flops(&f.t, &f.t.ops[3]) == 0);
    for (int32_t k = 0; k < TSR_OP_KINDS; k++)
        CHECK(tsr_op_kind_name((tsr_op_kind)k)[0] != '\0');
    end(&f);
}

static void describe__ops__name_what_they_cost(void)
{
    fixture f;
    tsr_val y;
    char text[96];
    size_t element;

    begin(&f);
    element = tsr_dtype_size(f.t.values[f.x].dtype);
    CHECK(tsr_op_conv2d(&f.t, &(tsr_conv_desc){.x = f.x, .weight = f.conv}, &y) == TSR_OK);
    tsr_op_describe(&f.t, &f.t.ops[0], text, sizeof text);
    CHECK_MSG(strcmp(text, "conv2d 3x3, 2x6x4, 32 to 16") == 0, "%s", text);
    CHECK(tsr_op_linear(&f.t,
                        &(tsr_linear_desc){.x = f.x, .x2 = f.x, .weight = f.wide, .geglu = true},
                        &y) == TSR_OK);
    tsr_op_describe(&f.t, &f.t.ops[1], text, sizeof text);
    CHECK_MSG(strcmp(text, "linear geglu, 2x48, 32+32 to 8") == 0, "%s", text);
    CHECK(tsr_op_attention(
              &f.t, &(tsr_attention_desc){.q = f.x, .k = f.tokens, .v = f.tokens, .n_heads = 2},
              &y) == TSR_OK);
    tsr_op_describe(&f.t, &f.t.ops[2], text, sizeof text);
    CHECK_MSG(strcmp(text, "attention, 2x48 over 48, 2 of 16") == 0, "%s", text);
    /* q, k, v and the output */
    CHECK(tsr_op_bytes(&f.t, &f.t.ops[2]) == 4.0 * 2 * 48 * 32 * (double)element);
    tsr_op_describe(&f.t, &f.t.ops[2], text, 8);
    CHECK(strcmp(text, "attenti") == 0);
    end(&f);
}

/* Every allocation of a small recording fails once: OOM, and the tape can still be freed. */
static void recording__any_allocation_fails__is_out_of_memory(void)
{
    bool failed = true;

    for (uint64_t n = 1; failed; n++) {
        tsr_err err = {0};
        tsr_tape t;
        tsr_val v = 0, y = 0;
        tsr_status st;

        tsr_tape_init(&t, TSR_F16, &err);
        tsr_alloc_fail_at(n);
        st = tsr_tape_set_scope(&t, "scope");
        if (st == TSR_OK)
            st = tsr_tape_input(&t, (int32_t[]){1, 2, 2, 2}, TSR_F16, "x", &v);
        for (int32_t i = 0; i < 40 && st == TSR_OK; i++)
            st = tsr_op_add(&t, &(tsr_add_desc){.x = v, .y = v}, &y);
        failed = tsr_alloc_failed();
        tsr_alloc_fail_at(0);
        CHECK(st == (failed ? TSR_E_OOM : TSR_OK));
        CHECK(!failed || err.msg[0]);
        tsr_tape_free(&t);
    }
}

int main(void)
{
    RUN(lifetimes__uses__stretch_values_views_and_weights);
    RUN(entries__of_operands__are_joined);
    RUN(entries__of_two_lengths__are_refused);
    RUN(step_view__of_nothing_or_of_a_view__is_refused);
    RUN(flops__conv_linear_attention__count_multiply_adds_twice);
    RUN(describe__ops__name_what_they_cost);
    RUN(recording__any_allocation_fails__is_out_of_memory);
    return test_end();
}
