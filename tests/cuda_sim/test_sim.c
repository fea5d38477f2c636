/* test_sim.c -- the simulation itself: what it computes, and that it catches what it is there for.
 *
 * Every kind of mistake is made once on purpose, in every order of fibers or streams. */
#include <setjmp.h>
#include <signal.h>
#include <string.h>

#include "base/half.h"
#include "tests/cuda_sim/sim.h"
#include "tests/cuda_sim/test_kernels.h"
#include "tests/support/test.h"

enum { N = 4096, BLOCKS = 4, TILE = 384 };

typedef struct bench {
    cudaStream_t stream[2];
    float *in, *out, *pinned;
    void *half;
} bench;

static float numbers[N];
static uint16_t halves[TILE];

static void begin(bench *b, sim_options o)
{
    tsr_sim_control()->set(&o);
    tsr_sim_control()->clear_fault();
    memset(b, 0, sizeof *b);
    for (int i = 0; i < N; i++)
        numbers[i] = (float)(i % 7);
    for (int i = 0; i < TILE; i++)
        halves[i] = tsr_f32_to_f16((float)(i * 37 % 11 - 5));
    for (int i = 0; i < 2; i++)
        CHECK(cudaStreamCreateWithFlags(&b->stream[i], cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaMalloc((void **)&b->in, sizeof numbers) == cudaSuccess);
    CHECK(cudaMalloc((void **)&b->out, sizeof numbers) == cudaSuccess);
    CHECK(cudaMalloc(&b->half, sizeof halves) == cudaSuccess);
    CHECK(cudaHostAlloc((void **)&b->pinned, sizeof numbers, 0) == cudaSuccess);
    CHECK(cudaMemcpyAsync(b->in, numbers, sizeof numbers, cudaMemcpyHostToDevice, b->stream[0]) ==
          cudaSuccess);
    CHECK(cudaMemcpyAsync(b->half, halves, sizeof halves, cudaMemcpyHostToDevice, b->stream[0]) ==
          cudaSuccess);
}

static void end(bench *b)
{
    sim_figures f;

    for (int i = 0; i < 2; i++)
        cudaStreamDestroy(b->stream[i]);
    cudaFree(b->in);
    cudaFree(b->out);
    cudaFree(b->half);
    cudaFreeHost(b->pinned);
    tsr_sim_control()->set(&(sim_options){0}); /* also after a failure that sticks */
    tsr_sim_control()->figures(&f);
    CHECK_MSG(f.n_allocations == 0 && f.n_streams == 0 && f.n_events == 0,
              "%zu allocations, %zu streams, %zu events are left", f.n_allocations, f.n_streams,
              f.n_events);
}

static sim_options order(int i)
{
    static const sim_order_kind kinds[] = {SIM_ORDER_FORWARD, SIM_ORDER_BACKWARD, SIM_ORDER_RANDOM};

    return (sim_options){.order = {.kind = kinds[i % 3], .seed = (uint64_t)i}};
}

static cudaError_t read_out(bench *b, float *dst, size_t n)
{
    return cudaMemcpyAsync(dst, b->out, n * sizeof *dst, cudaMemcpyDeviceToHost, b->stream[0]);
}

/* --------------------------------------------------------------------- kernels */

/* The number of orders in which the block sums of a kernel are right. */
static int right_sums(int32_t wrong)
{
    float got[BLOCKS];
    int right = 0;

    for (int i = 0; i < 6; i++) {
        bench b;
        bool all = true;
        begin(&b, order(i));
        CHECK(test_sum(&(test_args){.in = b.in, .out = b.out, .n = N, .wrong = wrong}, BLOCKS,
                       N / BLOCKS, b.stream[0]) == cudaSuccess);
        CHECK(read_out(&b, got, BLOCKS) == cudaSuccess);
        for (int k = 0; k < BLOCKS; k++) {
            float want = 0;
            for (int j = 0; j < N / BLOCKS; j++)
                want += numbers[k * (N / BLOCKS) + j];
            all = all && got[k] == want;
        }
        right += all;
        end(&b);
    }
    return right;
}

static void fiber__sums_of_blocks__are_right_in_every_order(void)
{
    CHECK(right_sums(TEST_RIGHT) == 6);
}

static void fiber__missing_barrier__shows_in_some_order(void)
{
    CHECK(right_sums(TEST_NO_BARRIER) < 6);
}

static float tile_error(int32_t wrong, int i)
{
    float got[16 * 8], worst = 0;
    bench b;

    begin(&b, order(i));
    CHECK(test_tile(&(test_args){.half = b.half, .out = b.out, .wrong = wrong}, b.stream[0]) ==
          cudaSuccess);
    CHECK(read_out(&b, got, 16 * 8) == cudaSuccess);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float want = 0;
            for (int k = 0; k < 16; k++)
                want +=
                    tsr_f16_to_f32(halves[m * 16 + k]) * tsr_f16_to_f32(halves[256 + n * 16 + k]);
            if (!(got[m * 8 + n] == want))
                worst = 1;
        }
    end(&b);
    return worst;
}

static void fiber__tile_product__equals_loops(void)
{
    for (int i = 0; i < 6; i++)
        CHECK(tile_error(TEST_RIGHT, i) == 0);
}

static void fiber__copy_that_nobody_waits_for__is_not_there(void)
{
    for (int i = 0; i < 6; i++)
        CHECK(tile_error(TEST_NO_WAIT, i) > 0);
}

static void fiber__wrong_kernels__are_caught(void)
{
    static const struct {
        int32_t wrong;
        const char *says;
    } cases[] = {{TEST_LEAVE, "has ended while others"},
                 {TEST_OTHER_BARRIER, "different barriers"},
                 {TEST_HALF_WARP, "not at the same instruction"},
                 {TEST_MISALIGNED, "not aligned"},
                 {TEST_BESIDE_SHARED, "beside the block's shared memory"}};

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int i = 0; i < 3; i++) {
            bench b;
            begin(&b, order(i));
            CHECK(test_leave(&(test_args){.in = b.in, .out = b.out, .wrong = cases[c].wrong}, 64,
                             b.stream[0]) == cudaSuccess);
            CHECK(cudaStreamSynchronize(b.stream[0]) == cudaErrorLaunchFailure);
            CHECK_MSG(strstr(tsr_sim_control()->fault(), cases[c].says) != NULL, "%d: \"%s\"",
                      cases[c].wrong, tsr_sim_control()->fault());
            CHECK(cudaStreamSynchronize(b.stream[0]) == cudaErrorLaunchFailure);
            end(&b);
        }
}

static void launch__address_of_the_host__is_refused(void)
{
    bench b;

    begin(&b, order(0));
    CHECK(test_sum(&(test_args){.in = numbers, .out = b.out, .n = N}, 1, 32, b.stream[0]) ==
          cudaErrorIllegalAddress);
    CHECK(strstr(tsr_sim_control()->fault(), "address of the host") != NULL);
    end(&b);
}

/* --------------------------------------------------------------------- streams */

/* A sum on one stream over what the other copies; *fresh: of how many orders the sum is of the new
 * numbers. Without the wait, or without the fence, some order must be wrong. */
static int sums_of_copy(bool wait, bool fence)
{
    int right = 0;

    for (int i = 0; i < 8; i++) {
        sim_options o = {.streams = (sim_stream_kind)(i % 3), .stream_seed = (uint64_t)i};
        cudaEvent_t copied, read;
        float got[2] = {0, 0};
        bench b;

        begin(&b, o);
        cudaEventCreateWithFlags(&copied, cudaEventDisableTiming);
        cudaEventCreateWithFlags(&read, cudaEventDisableTiming);
        for (int k = 0; k < 32; k++)
            b.pinned[k] = 2;
        /* old numbers are summed, then overwritten, then the new ones are summed */
        test_sum(&(test_args){.in = b.in, .out = b.out, .n = 32}, 1, 32, b.stream[0]);
        cudaEventRecord(read, b.stream[0]);
        if (fence)
            cudaStreamWaitEvent(b.stream[1], read, 0);
        cudaMemcpyAsync(b.in, b.pinned, 32 * sizeof(float), cudaMemcpyHostToDevice, b.stream[1]);
        cudaEventRecord(copied, b.stream[1]);
        if (wait)
            cudaStreamWaitEvent(b.stream[0], copied, 0);
        test_sum(&(test_args){.in = b.in, .out = b.out + 1, .n = 32}, 1, 32, b.stream[0]);
        CHECK(read_out(&b, got, 2) == cudaSuccess);
        right += got[0] == 90 && got[1] == 64; /* 0..6 four times, and 0..3 */
        cudaEventDestroy(copied);
        cudaEventDestroy(read);
        end(&b);
    }
    return right;
}

static void streams__events_in_place__are_right_in_every_order(void)
{
    CHECK(sums_of_copy(true, true) == 8);
}

static void streams__missing_wait__shows(void)
{
    CHECK(sums_of_copy(false, true) < 8);
}

static void streams__missing_fence__shows(void)
{
    CHECK(sums_of_copy(true, false) < 8);
}

static void streams__pinned_source_overwritten_too_soon__shows(void)
{
    bench b;
    float got = 0;

    begin(&b, (sim_options){0});
    b.pinned[0] = 1;
    CHECK(cudaMemcpyAsync(b.out, b.pinned, 4, cudaMemcpyHostToDevice, b.stream[0]) == cudaSuccess);
    b.pinned[0] = 2;
    CHECK(read_out(&b, &got, 1) == cudaSuccess && got == 2);
    end(&b);
}

/* ---------------------------------------------------------------------- memory */

static void memory__limit__ends_where_it_is_set(void)
{
    void *p[4];
    sim_figures f;

    tsr_sim_control()->set(
        &(sim_options){.device_bytes = (size_t)16 << 20, .context_bytes = (size_t)10 << 20});
    CHECK(cudaMalloc(&p[0], 1) == cudaSuccess);
    CHECK(cudaMalloc(&p[1], ((size_t)4 << 20) + 1) == cudaErrorMemoryAllocation);
    CHECK(cudaMalloc(&p[1], (size_t)4 << 20) == cudaSuccess);
    CHECK(cudaMalloc(&p[2], 1) == cudaErrorMemoryAllocation);
    tsr_sim_control()->figures(&f);
    CHECK(f.used == (size_t)16 << 20 && f.peak == f.used);
    CHECK(cudaFree(p[1]) == cudaSuccess && cudaFree(p[0]) == cudaSuccess);
    tsr_sim_control()->set(&(sim_options){0});
}

static sigjmp_buf back;

static void caught(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

static void memory__host_that_reads_the_device__faults(void)
{
    struct sigaction action = {.sa_handler = caught}, before;
    volatile bool faulted = false;
    bench b;

    begin(&b, (sim_options){0});
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    sigaction(SIGSEGV, &action, &before);
    if (sigsetjmp(back, 1) == 0)
        (void)*(volatile float *)b.in;
    else
        faulted = true;
    sigaction(SIGSEGV, &before, NULL);
    CHECK(faulted);
    end(&b);
}

static void memory__copy_beyond_an_allocation__is_refused(void)
{
    bench b;

    begin(&b, (sim_options){0});
    CHECK(cudaMemcpyAsync(b.in, numbers, sizeof numbers + 4, cudaMemcpyHostToDevice, b.stream[0]) ==
          cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(b.out, numbers, 4, cudaMemcpyDeviceToHost, b.stream[0]) ==
          cudaErrorInvalidValue);
    CHECK(strstr(tsr_sim_control()->fault(), "not inside of memory") != NULL);
    end(&b);
}

static void memory__kernel_that_writes_beside__is_caught(void)
{
    bench b;

    begin(&b, (sim_options){0});
    CHECK(test_leave(&(test_args){.in = b.in, .out = b.out + N}, 32, b.stream[0]) == cudaSuccess);
    CHECK(cudaStreamSynchronize(b.stream[0]) == cudaErrorIllegalAddress);
    CHECK(strstr(tsr_sim_control()->fault(), "beside device memory") != NULL);
    end(&b);
}

/* ---------------------------------------------------------------------- faults */

static void faults__each_call__fails_once_as_it_would(void)
{
    const sim_control *c = tsr_sim_control();
    void *p;

    c->set(&(sim_options){0});
    c->fail_at(2);
    CHECK(cudaMalloc(&p, 1) == cudaSuccess && !c->failed());
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure && c->failed());
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    c->lose_device(cudaErrorECCUncorrectable);
    CHECK(cudaDeviceSynchronize() == cudaErrorECCUncorrectable);
    c->lose_device(cudaSuccess);
    CHECK(cudaFree(p) == cudaSuccess);
}

static void faults__no_driver__is_told(void)
{
    const sim_control *c = tsr_sim_control();
    int n = 5;

    c->set(&(sim_options){.driver = -1});
    CHECK(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver && n == 0);
    c->set(&(sim_options){.driver = 12080});
    CHECK(cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver && n == 0);
    c->set(&(sim_options){0});
    CHECK(cudaGetDeviceCount(&n) == cudaSuccess && n == 1);
}

int main(void)
{
    RUN(fiber__sums_of_blocks__are_right_in_every_order);
    RUN(fiber__missing_barrier__shows_in_some_order);
    RUN(fiber__tile_product__equals_loops);
    RUN(fiber__copy_that_nobody_waits_for__is_not_there);
    RUN(fiber__wrong_kernels__are_caught);
    RUN(launch__address_of_the_host__is_refused);
    RUN(streams__events_in_place__are_right_in_every_order);
    RUN(streams__missing_wait__shows);
    RUN(streams__missing_fence__shows);
    RUN(streams__pinned_source_overwritten_too_soon__shows);
    RUN(memory__limit__ends_where_it_is_set);
    RUN(memory__host_that_reads_the_device__faults);
    RUN(memory__copy_beyond_an_allocation__is_refused);
    RUN(memory__kernel_that_writes_beside__is_caught);
    RUN(faults__each_call__fails_once_as_it_would);
    RUN(faults__no_driver__is_told);
    return test_end();
}
