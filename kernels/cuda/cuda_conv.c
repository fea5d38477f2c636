/* cuda_conv.c -- convolutions through cuDNN's graph API, for one window of rows and channels.
 *
 *     y = conv(x, w) + bias + add + residual
 *
 * one graph: the sums and what is added to them are float32 and are never in memory. Tensors are
 * NHWC: dims in cuDNN's order N, C, H, W, with strides that say so; a filter is [Co][R][S][C]. A
 * window of rows is a convolution of the rows under its taps, with padding where the image ends; a
 * window of channels a piece of the filter, whose output has the whole output's pixel stride.
 *
 * Bytes: x, w, residual and y once. Roof: the tensor cores'. */
#include "base/num.h"
#include "kernels/cuda/cuda_library.h"

enum { ID_X = 1, ID_W, ID_BIAS, ID_ADD, ID_RESIDUAL, ID_Y, ID_VIRTUAL };

/* First row of x that the window reads, and how many; zeros above and below. */
typedef struct rows {
    int32_t first, n, above, below;
} rows;

static rows rows_of(const tsr_call *call)
{
    const tsr_window *w = &call->window;
    int32_t stride = call->op->u.conv.stride, top = call->op->u.conv.pad_top;
    int32_t begin = w->h0 * stride - top;
    int32_t end = (w->h1 - 1) * stride - top + call->op->u.conv.r;
    rows y = {.first = tsr_max_i32(begin, 0)};

    y.above = y.first - begin;
    y.below = tsr_max_i32(end - call->in[0].h, 0);
    y.n = tsr_min_i32(end, call->in[0].h) - y.first;
    return y;
}

tsr_cuda_key tsr_cuda_conv_key(const tsr_call *call)
{
    const tsr_window *w = &call->window;
    const tsr_tensor *x = &call->in[0], *add = &call->in[2], *residual = &call->in[3];
    rows y = rows_of(call);
    int32_t end = (call->out.w - 1) * call->op->u.conv.stride - call->op->u.conv.pad_left +
                  call->op->u.conv.s;
    tsr_cuda_key k = {
        .kind = TSR_OP_CONV2D,
        .dtype = (int32_t)x->dtype,
        .bias = call->w[1] != NULL,
        .add = add->data ? 1 + (add->entry_stride > 0 && add->n > 1) : 0,
        .residual = residual->data != NULL,
        .n = w->n1 - w->n0,
        .co = (w->c1 ? w->c1 : call->out.c) - w->c0,
        .c = x->c,
        .out_h = w->h1 - w->h0,
        .out_w = call->out.w,
        .in_h = y.n,
        .in_w = x->w,
        .r = call->op->u.conv.r,
        .s = call->op->u.conv.s,
        .stride = call->op->u.conv.stride,
        .pad = {y.above, call->op->u.conv.pad_left, y.below, tsr_max_i32(end - x->w, 0)},
        .out_entry = tsr_cuda_elements(call, call->out.entry_stride),
        .out_pixel = call->out.c,
        .x_entry = tsr_cuda_elements(call, x->entry_stride),
        .add_entry = tsr_cuda_elements(call, add->entry_stride),
        .residual_entry = tsr_cuda_elements(call, residual->entry_stride)};

    if (k.n == 1) /* no stride between entries is used: it makes no other plan */
        k.out_entry = k.x_entry = k.add_entry = k.residual_entry = 0;
    k.add = k.add && k.n == 1 ? 1 : k.add;
    return k;
}

/* Of an image [n][h][w][c] whose pixels are `pixel` elements apart. */
static void set_strides(tsr_cuda_tensor *t, int64_t entry, int64_t pixel)
{
    t->strides[0] = entry ? entry : t->dims[2] * t->dims[3] * pixel;
    t->strides[1] = 1;
    t->strides[2] = t->dims[3] * pixel;
    t->strides[3] = pixel;
}

/* y as a tensor, in memory or between operations. */
static cudnnBackendDescriptor_t result(tsr_cuda_graph *g, const tsr_cuda_key *k, bool last)
{
    tsr_cuda_tensor y = {.id = last ? ID_Y : ID_VIRTUAL + g->n_ops,
                         .type = last ? tsr_cuda_dnn_type(k->dtype) : CUDNN_DATA_FLOAT,
                         .dims = {k->n, k->co, k->out_h, k->out_w},
                         .is_virtual = !last};

    set_strides(&y, k->out_entry, k->out_pixel);
    return tsr_cuda_graph_tensor(g, &y);
}

/* What is added: a vector, the same for all entries or not, or an image. */
static cudnnBackendDescriptor_t summand(tsr_cuda_graph *g, const tsr_cuda_key *k, int64_t id)
{
    int64_t n = id == ID_BIAS || k->add < 2 ? 1 : k->n;
    tsr_cuda_tensor t = {
        .id = id,
        .type = tsr_cuda_dnn_type(k->dtype),
        .dims = {n, k->co, 1, 1},
        .strides = {id == ID_ADD && n > 1 ? k->add_entry : k->co, 1, k->co, k->co}};

    if (id == ID_RESIDUAL) {
        t.dims[0] = k->n;
        t.dims[2] = k->out_h;
        t.dims[3] = k->out_w;
        set_strides(&t, k->residual_entry, k->out_pixel);
    }
    return tsr_cuda_graph_tensor(g, &t);
}

static cudnnBackendDescriptor_t convolution(tsr_cuda_graph *g, const tsr_cuda_key *k)
{
    cudnnBackendDescriptor_t d = tsr_cuda_graph_make(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t two = 2, before[2] = {k->pad[0], k->pad[1]}, after[2] = {k->pad[2], k->pad[3]};
    int64_t stride[2] = {k->stride, k->stride}, dilation[2] = {1, 1};

    tsr_cuda_graph_set(g, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
                       &mode);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, before);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, after);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    tsr_cuda_graph_end(g, d);
    return d;
}

/* The convolution itself; returns its output. */
static cudnnBackendDescriptor_t convolve(tsr_cuda_graph *g, const tsr_cuda_key *k, bool last)
{
    int64_t c = k->c, row = (int64_t)k->s * c;
    tsr_cuda_tensor x = {
        .id = ID_X, .type = tsr_cuda_dnn_type(k->dtype), .dims = {k->n, c, k->in_h, k->in_w}};
    tsr_cuda_tensor w = {.id = ID_W,
                         .type = x.type,
                         .dims = {k->co, c, k->r, k->s},
                         .strides = {k->r * row, 1, row, c}};
    cudnnBackendDescriptor_t conv, xd, wd, yd, d;
    float one = 1, zero = 0;

    set_strides(&x, k->x_entry, c);
    conv = convolution(g, k);
    xd = tsr_cuda_graph_tensor(g, &x);
    wd = tsr_cuda_graph_tensor(g, &w);
    yd = result(g, k, last);
    d = tsr_cuda_graph_make(g, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &xd);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &wd);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &yd);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1,
                       &one);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1,
                       &zero);
    tsr_cuda_graph_op(g, d);
    return yd;
}

/* sum = y + b; returns it. */
static cudnnBackendDescriptor_t add(tsr_cuda_graph *g, const tsr_cuda_key *k,
                                    cudnnBackendDescriptor_t y, int64_t id, bool last)
{
    cudnnBackendDescriptor_t mode, b, sum, d;
    cudnnPointwiseMode_t plus = CUDNN_POINTWISE_ADD;
    cudnnDataType_t math = CUDNN_DATA_FLOAT;

    mode = tsr_cuda_graph_make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    tsr_cuda_graph_set(g, mode, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &plus);
    tsr_cuda_graph_set(g, mode, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    tsr_cuda_graph_end(g, mode);
    b = summand(g, k, id);
    sum = result(g, k, last);
    d = tsr_cuda_graph_make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &mode);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                       &y);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                       &b);
    tsr_cuda_graph_set(g, d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                       &sum);
    tsr_cuda_graph_op(g, d);
    return sum;
}

tsr_status tsr_cuda_conv_build(tsr_cuda *c, tsr_cuda_plan *p, tsr_err *err)
{
    const tsr_cuda_key *k = &p->key;
    tsr_cuda_graph g = {.plan = p};
    cudnnBackendDescriptor_t y = convolve(&g, k, !k->bias && !k->add && !k->residual);

    if (k->bias)
        y = add(&g, k, y, ID_BIAS, !k->add && !k->residual);
    if (k->add)
        y = add(&g, k, y, ID_ADD, !k->residual);
    if (k->residual)
        (void)add(&g, k, y, ID_RESIDUAL, true);
    return tsr_cuda_graph_plan(&g, c, err);
}

/* Channel c0 of row y of entry n. */
static void *at(const tsr_tensor *t, int32_t n, int32_t y, int32_t c0)
{
    return (void *)((uintptr_t)t->data + (size_t)n * t->entry_stride +
                    (size_t)(y - t->row0) * t->row_stride + (size_t)c0 * tsr_dtype_size(t->dtype));
}

void tsr_cuda_conv_run(tsr_cuda *c, const tsr_cuda_plan *p, const tsr_call *call)
{
    const tsr_window *w = &call->window;
    int64_t ids[6], n = 0;
    void *addresses[6];

#define TENSOR(number, address) (ids[n] = number, addresses[n++] = address)
    TENSOR(ID_X, at(&call->in[0], w->n0, rows_of(call).first, 0));
    TENSOR(ID_W, (void *)(uintptr_t)call->w[0]);
    TENSOR(ID_Y, at(&call->out, w->n0, w->h0, w->c0));
    if (p->key.bias)
        TENSOR(ID_BIAS, (void *)((uintptr_t)tsr_cuda_bias(call, call->in[0].dtype) +
                                 (size_t)w->c0 * tsr_dtype_size(call->in[0].dtype)));
    if (p->key.add)
        TENSOR(ID_ADD, at(&call->in[2], call->in[2].n > 1 ? w->n0 : 0, 0, w->c0));
    if (p->key.residual)
        TENSOR(ID_RESIDUAL, at(&call->in[3], w->n0, w->h0, w->c0));
#undef TENSOR
    tsr_cuda_graph_run(c, p, ids, addresses, n, call);
}
