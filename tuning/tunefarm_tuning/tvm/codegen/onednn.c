/* Products (2-D convolutions, matrix products) by oneDNN 3, for the kernels of a library: tvm/kernels/library_products.py calls this.
 *
 * A kernel asks `tunefarm_onednn_ready` for its state, and gets a null pointer where the library is missing, or cannot compute the
 * product. Otherwise it calls `tunefarm_onednn_run` once for each slice of the results, from the threads of a pool. So oneDNN
 * starts no threads. Then it runs loops of its own, unless `tunefarm_onednn_done` says that the library computed all slices.
 *
 * Weights are brought into oneDNN's order at the first call, and kept by the digest of their values, which the kernel passes: an
 * address may be another tensor's later. They, and the threads' scratch memory, are freed when the artifact is unloaded.
 *
 * Types and values of oneDNN's C API, version 3 (oneapi/dnnl/dnnl.h), are declared here: nothing but a C compiler is needed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DIMS 12 /* DNNL_MAX_NDIMS */
#define MAX_POST_OPS 8
#define MAX_TENSORS 4 /* tensors that the steps after the product read */
#define MAX_SLICES 64

enum { BF16 = 2, F32 = 3 }; /* dnnl_data_type_t */
enum { ARG_SRC = 1, ARG_DST = 17, ARG_WEIGHTS = 33, ARG_SCRATCHPAD = 80, ARG_POST_OP = 32768, ARG_SRC_1 = 2 };
enum { CPU = 1, IN_ORDER = 1, INFERENCE = 96, DIRECT = 1, FORMAT_ANY = 1, USER_SCRATCHPAD = 1 };
enum { QUERY_WEIGHTS = 131, QUERY_SCRATCHPAD = 136 };
enum { RELU = 0x20 };
enum { ALL, PER_CHANNEL, SINGLE }; /* elements of a tensor that a step reads */

typedef void *Handle;
typedef struct {
    int arg;
    Handle memory;
} Argument;

/* The functions of the library, looked up once. */
static struct {
    int (*engine_create)(Handle *, int, size_t);
    int (*stream_create)(Handle *, Handle, unsigned);
    int (*stream_destroy)(Handle);
    int (*memory_desc_create_with_strides)(Handle *, int, const int64_t *, int, const int64_t *);
    int (*memory_desc_create_with_tag)(Handle *, int, const int64_t *, int, int);
    int (*memory_desc_destroy)(Handle);
    int (*memory_desc_clone)(Handle *, Handle);
    int (*memory_desc_equal)(Handle, Handle);
    size_t (*memory_desc_get_size)(Handle);
    int (*memory_create)(Handle *, Handle, Handle, void *);
    int (*memory_destroy)(Handle);
    int (*convolution_forward_primitive_desc_create)(Handle *, Handle, int, int, Handle, Handle, Handle, Handle,
                                                     const int64_t *, const int64_t *, const int64_t *,
                                                     const int64_t *, Handle);
    int (*matmul_primitive_desc_create)(Handle *, Handle, Handle, Handle, Handle, Handle, Handle);
    int (*reorder_primitive_desc_create)(Handle *, Handle, Handle, Handle, Handle, Handle);
    Handle (*primitive_desc_query_md)(Handle, int, int);
    int (*primitive_desc_destroy)(Handle);
    int (*primitive_create)(Handle *, Handle);
    int (*primitive_execute)(Handle, Handle, int, const Argument *);
    int (*primitive_destroy)(Handle);
    int (*primitive_attr_create)(Handle *);
    int (*primitive_attr_destroy)(Handle);
    int (*primitive_attr_set_post_ops)(Handle, Handle);
    int (*primitive_attr_set_scratchpad_mode)(Handle, int);
    int (*post_ops_create)(Handle *);
    int (*post_ops_destroy)(Handle);
    int (*post_ops_append_eltwise)(Handle, int, float, float);
    int (*post_ops_append_binary)(Handle, int, Handle);
} dnnl;

static void (*set_num_threads)(int); /* of OpenMP, for the calling thread */
static int (*get_max_threads)(void);
static pthread_key_t own_thread;
static Handle engine;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int loaded;

static const struct {
    const char *name;
    void *function;
} names[] = {
#define FUNCTION(name) {"dnnl_" #name, &dnnl.name}
    FUNCTION(engine_create), FUNCTION(stream_create), FUNCTION(memory_desc_create_with_strides),
    FUNCTION(memory_desc_create_with_tag), FUNCTION(memory_desc_destroy), FUNCTION(memory_desc_clone),
    FUNCTION(memory_desc_equal), FUNCTION(memory_desc_get_size), FUNCTION(memory_create),
    FUNCTION(memory_destroy), FUNCTION(convolution_forward_primitive_desc_create),
    FUNCTION(matmul_primitive_desc_create), FUNCTION(reorder_primitive_desc_create),
    FUNCTION(primitive_desc_query_md), FUNCTION(primitive_desc_destroy), FUNCTION(primitive_create),
    FUNCTION(primitive_execute), FUNCTION(primitive_destroy), FUNCTION(primitive_attr_create),
    FUNCTION(primitive_attr_destroy), FUNCTION(primitive_attr_set_post_ops),
    FUNCTION(primitive_attr_set_scratchpad_mode), FUNCTION(post_ops_create), FUNCTION(post_ops_destroy),
    FUNCTION(post_ops_append_eltwise), FUNCTION(post_ops_append_binary), FUNCTION(stream_destroy),
#undef FUNCTION
};

static void end_thread(void *thread);

/* The library that whoever loads the artifact has loaded already, or that the system knows. */
static void find_library(void) {
    void *library = dlopen("libdnnl.so.3", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *function = dlsym(library, names[i].name);
        if (!function) {
            dlclose(library);
            return;
        }
        memcpy(names[i].function, &function, sizeof function);
    }
    /* Also of the libraries that it was linked with. */
    void *set = dlsym(library, "omp_set_num_threads"), *get = dlsym(library, "omp_get_max_threads");
    if (set && get) {
        memcpy(&set_num_threads, &set, sizeof set);
        memcpy(&get_max_threads, &get, sizeof get);
    }
    if (pthread_key_create(&own_thread, end_thread)) return;
    loaded = dnnl.engine_create(&engine, CPU, 0) == 0;
    if (!loaded) pthread_key_delete(own_thread);
}

/* Let the calling thread use one thread of OpenMP; return how many others in the process may have it use, for `end_alone`. */
static int begin_alone(void) {
    if (!set_num_threads) return 0;
    int threads = get_max_threads();
    set_num_threads(1);
    return threads;
}

static void end_alone(int threads) {
    if (set_num_threads) set_num_threads(threads);
}

/* What a kernel says of its product, once: see `LibraryProduct.text`. */
typedef struct {
    int64_t is_conv, src_type, dst_type, slices;
    int64_t batch, height, width, channels;    /* matmul: 1, 1, rows, depth */
    int64_t out_height, out_width, out_channels; /* matmul: 1, rows, results */
    int64_t kernel_height, kernel_width, stride[2], pad_top, pad_left, dilation[2];
    /* Order of the weights as they are passed. No lanes: [height, width, in, products], of which the first out_channels count. */
    int64_t lanes, products;
    int64_t post_ops;
} Product;

typedef struct {
    int64_t kind;                   /* dnnl_alg_kind_t */
    int64_t tensor, type, elements; /* the number of the tensor that it reads; -1: none */
} PostOp;

typedef struct Packed {
    Handle order; /* memory descriptor */
    void *data;
    struct Packed *next;
} Packed;

typedef struct {
    Handle primitive; /* null: there is nothing to do */
    Handle src, weights, dst, scratchpad, tensors[MAX_POST_OPS];
    void *packed;
    int64_t src_offset, dst_offset, pixel_offset; /* bytes, bytes, pixels of the results */
} Slice;

typedef struct State {
    const char *text;
    int64_t key[2];
    Product product;
    PostOp post_ops[MAX_POST_OPS];
    Slice slices[MAX_SLICES];
    Packed *packed;
    void *plain; /* weights as [out, in, height, width] or [depth, results], until all slices are prepared */
    int usable; /* atomic: no slice has failed */
    struct State *next;
} State;

/* What a thread that computes slices keeps. */
typedef struct Thread {
    Handle stream;
    void *scratch;
    size_t scratch_size;
    struct Thread *next, *previous;
} Thread;

static State *states;
static Thread *threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;         /* of the states */
static pthread_mutex_t threads_lock = PTHREAD_MUTEX_INITIALIZER; /* of the list of threads */

static int64_t size_of(int64_t type) { return type == BF16 ? 2 : 4; }

static int read_product(const char *text, State *state) {
    int64_t *fields = (int64_t *)&state->product;
    char *rest = (char *)text;
    for (size_t i = 0; i < sizeof state->product / sizeof *fields; i++) fields[i] = strtoll(rest, &rest, 10);
    if (state->product.post_ops > MAX_POST_OPS || state->product.slices > MAX_SLICES) return 0;
    for (int64_t i = 0; i < state->product.post_ops; i++) {
        int64_t *op = (int64_t *)&state->post_ops[i];
        for (size_t j = 0; j < sizeof(PostOp) / sizeof *op; j++) op[j] = strtoll(rest, &rest, 10);
        if (state->post_ops[i].tensor >= MAX_TENSORS) return 0;
    }
    return 1;
}

/* Bring weights from the order of the kernel's loops into [out, in, height, width], for a matrix product [depth, results]. */
static void *plain_weights(const Product *p, const char *weights) {
    int64_t size = size_of(p->src_type), in = p->channels, out = p->out_channels;
    int64_t steps = (in + p->products - 1) / p->products;
    char *plain = malloc((size_t)(p->kernel_height * p->kernel_width * in * out * size));
    if (!plain) return NULL;
    for (int64_t y = 0; y < p->kernel_height; y++)
        for (int64_t x = 0; x < p->kernel_width; x++)
            for (int64_t i = 0; i < in; i++)
                for (int64_t o = 0; o < out; o++) {
                    int64_t pixel = y * p->kernel_width + x, from = (pixel * in + i) * p->products + o;
                    if (p->lanes) {
                        int64_t group = (o / p->lanes * p->kernel_height * p->kernel_width + pixel) * steps + i / p->products;
                        from = group * p->lanes * p->products + o % p->lanes * p->products + i % p->products;
                    }
                    int64_t to = p->is_conv ? (o * in + i) * p->kernel_height * p->kernel_width + pixel : i * out + o;
                    memcpy(plain + to * size, weights + from * size, (size_t)size);
                }
    return plain;
}

static Handle channels_last(int64_t type, int64_t n, int64_t c, int64_t h, int64_t w) {
    int64_t dims[MAX_DIMS] = {n, c, h, w}, strides[MAX_DIMS] = {h * w * c, 1, w * c, c};
    Handle result = NULL;
    return dnnl.memory_desc_create_with_strides(&result, 4, dims, (int)type, strides) ? NULL : result;
}

static Handle rows(int64_t type, int64_t count, int64_t width) {
    int64_t dims[MAX_DIMS] = {count, width}, strides[MAX_DIMS] = {width, 1};
    Handle result = NULL;
    return dnnl.memory_desc_create_with_strides(&result, 2, dims, (int)type, strides) ? NULL : result;
}

/* Return what the calling thread keeps; null without memory for it. */
static Thread *this_thread(void) {
    Thread *thread = pthread_getspecific(own_thread);
    if (thread) return thread;
    if (!(thread = calloc(1, sizeof *thread))) return NULL;
    if (dnnl.stream_create(&thread->stream, engine, IN_ORDER)) {
        free(thread);
        return NULL;
    }
    if (pthread_setspecific(own_thread, thread)) {
        dnnl.stream_destroy(thread->stream);
        free(thread);
        return NULL;
    }
    pthread_mutex_lock(&threads_lock);
    thread->next = threads;
    if (threads) threads->previous = thread;
    threads = thread;
    pthread_mutex_unlock(&threads_lock);
    return thread;
}

static void end_thread(void *ended) {
    Thread *thread = ended;
    pthread_mutex_lock(&threads_lock);
    if (thread->next) thread->next->previous = thread->previous;
    if (thread->previous)
        thread->previous->next = thread->next;
    else
        threads = thread->next;
    pthread_mutex_unlock(&threads_lock);
    dnnl.stream_destroy(thread->stream);
    free(thread->scratch);
    free(thread);
}

/* Return weights in an order of oneDNN's; slices share them. */
static void *packed_weights(State *state, Handle order) {
    const Product *p = &state->product;
    for (Packed *packed = state->packed; packed; packed = packed->next)
        if (dnnl.memory_desc_equal(packed->order, order)) return packed->data;
    int64_t dims[MAX_DIMS] = {p->out_channels, p->channels, p->kernel_height, p->kernel_width};
    int64_t area = p->kernel_height * p->kernel_width;
    int64_t strides[MAX_DIMS] = {p->channels * area, area, p->kernel_width, 1};
    Handle from = NULL, desc = NULL, reorder = NULL, source = NULL, result = NULL;
    Thread *thread = this_thread();
    Packed *packed = calloc(1, sizeof *packed);
    void *data = aligned_alloc(64, (dnnl.memory_desc_get_size(order) + 63) / 64 * 64);
    int failed = !thread || !packed || !data || dnnl.memory_desc_clone(&packed->order, order);
    if (p->is_conv)
        failed = failed || dnnl.memory_desc_create_with_strides(&from, 4, dims, (int)p->src_type, strides);
    else
        failed = failed || !(from = rows(p->src_type, p->channels, p->out_channels));
    failed = failed || dnnl.memory_create(&source, from, engine, state->plain) ||
             dnnl.memory_create(&result, order, engine, data) ||
             dnnl.reorder_primitive_desc_create(&desc, from, engine, order, engine, NULL) ||
             dnnl.primitive_create(&reorder, desc);
    if (!failed) {
        Argument arguments[] = {{ARG_SRC, source}, {ARG_DST, result}};
        failed = dnnl.primitive_execute(reorder, thread->stream, 2, arguments);
    }
    if (reorder) dnnl.primitive_destroy(reorder);
    if (desc) dnnl.primitive_desc_destroy(desc);
    if (source) dnnl.memory_destroy(source);
    if (result) dnnl.memory_destroy(result);
    if (from) dnnl.memory_desc_destroy(from);
    if (failed) {
        if (packed && packed->order) dnnl.memory_desc_destroy(packed->order);
        free(data);
        free(packed);
        return NULL;
    }
    packed->data = data;
    packed->next = state->packed;
    state->packed = packed;
    return data;
}

/* Append the steps after a product of these sizes. */
static int append_post_ops(State *state, Slice *slice, Handle attributes, int64_t n, int64_t h, int64_t w) {
    const Product *p = &state->product;
    Handle ops = NULL;
    if (dnnl.post_ops_create(&ops)) return 0;
    int failed = 0;
    for (int64_t i = 0; i < p->post_ops && !failed; i++) {
        const PostOp *op = &state->post_ops[i];
        if (op->tensor < 0) {
            /* alpha: of a ReLU the slope below zero, of a SiLU the factor in the sigmoid */
            failed = dnnl.post_ops_append_eltwise(ops, (int)op->kind, op->kind == RELU ? 0 : 1, 0);
            continue;
        }
        int whole = op->elements == ALL;
        int64_t channels = op->elements == SINGLE ? 1 : p->out_channels;
        Handle tensor = p->is_conv ? channels_last(op->type, whole ? n : 1, channels, whole ? h : 1, whole ? w : 1)
                                   : rows(op->type, whole ? w : 1, channels);
        slice->tensors[i] = tensor;
        failed = !tensor || dnnl.post_ops_append_binary(ops, (int)op->kind, tensor);
    }
    failed = failed || dnnl.primitive_attr_set_post_ops(attributes, ops);
    dnnl.post_ops_destroy(ops);
    return !failed;
}

/* Prepare a slice of the results: some images, or some rows of one, or some rows of a matrix. */
static int prepare(State *state, int64_t number) {
    const Product *p = &state->product;
    Slice *slice = &state->slices[number];
    int64_t in_size = size_of(p->src_type), out_size = size_of(p->dst_type);
    int64_t images = p->batch, high = p->out_height, above = 0;
    Handle attributes = NULL, weights = NULL, desc = NULL;
    int failed = dnnl.primitive_attr_create(&attributes) ||
                 dnnl.primitive_attr_set_scratchpad_mode(attributes, USER_SCRATCHPAD);
    if (!p->is_conv) {
        int64_t begin = p->out_width * number / p->slices, count = p->out_width * (number + 1) / p->slices - begin;
        int64_t dims[MAX_DIMS] = {p->channels, p->out_channels};
        slice->src_offset = begin * p->channels * in_size;
        slice->dst_offset = begin * p->out_channels * out_size;
        slice->pixel_offset = begin;
        if (!count) goto done;
        slice->src = rows(p->src_type, count, p->channels);
        slice->dst = rows(p->dst_type, count, p->out_channels);
        failed = failed || !slice->src || !slice->dst || !append_post_ops(state, slice, attributes, 1, 1, count) ||
                 dnnl.memory_desc_create_with_tag(&weights, 2, dims, (int)p->src_type, FORMAT_ANY) ||
                 dnnl.matmul_primitive_desc_create(&desc, engine, slice->src, weights, NULL, slice->dst, attributes);
    } else {
        int64_t image = 0, per_image = p->batch >= p->slices ? 1 : (p->slices + p->batch - 1) / p->batch;
        if (per_image == 1) {
            image = p->batch * number / p->slices;
            images = p->batch * (number + 1) / p->slices - image;
        } else {
            image = number / per_image;
            images = image < p->batch;
            above = p->out_height * (number % per_image) / per_image;
            high = p->out_height * (number % per_image + 1) / per_image - above;
        }
        if (!images || !high) goto done;
        int64_t reach = (p->kernel_height - 1) * p->dilation[0] + 1;
        int64_t across = (p->kernel_width - 1) * p->dilation[1] + 1;
        int64_t first = above * p->stride[0] - p->pad_top;
        int64_t last = (above + high - 1) * p->stride[0] - p->pad_top + reach;
        int64_t right = (p->out_width - 1) * p->stride[1] - p->pad_left + across - p->width;
        int64_t before[2] = {first < 0 ? -first : 0, p->pad_left};
        /* Rows and columns that no result reads are padding of less than none: images stay as far apart as they are. */
        int is_lowest = above + high == p->out_height;
        int64_t after[2] = {is_lowest || last > p->height ? last - p->height : 0, right};
        int64_t dilation[2] = {p->dilation[0] - 1, p->dilation[1] - 1};
        int64_t dims[MAX_DIMS] = {p->out_channels, p->channels, p->kernel_height, p->kernel_width};
        if (first < 0) first = 0;
        last -= after[0];
        if (last <= first) {
            failed = 1;
            goto done;
        }
        slice->src_offset = (image * p->height + first) * p->width * p->channels * in_size;
        slice->pixel_offset = (image * p->out_height + above) * p->out_width;
        slice->dst_offset = slice->pixel_offset * p->out_channels * out_size;
        slice->src = channels_last(p->src_type, images, p->channels, last - first, p->width);
        slice->dst = channels_last(p->dst_type, images, p->out_channels, high, p->out_width);
        failed = failed || !slice->src || !slice->dst ||
                 !append_post_ops(state, slice, attributes, images, high, p->out_width) ||
                 dnnl.memory_desc_create_with_tag(&weights, 4, dims, (int)p->src_type, FORMAT_ANY) ||
                 dnnl.convolution_forward_primitive_desc_create(&desc, engine, INFERENCE, DIRECT, slice->src, weights,
                                                                NULL, slice->dst, p->stride, dilation, before, after,
                                                                attributes);
    }
    if (failed) goto done;
    Handle order = dnnl.primitive_desc_query_md(desc, QUERY_WEIGHTS, 0);
    Handle scratchpad = dnnl.primitive_desc_query_md(desc, QUERY_SCRATCHPAD, 0);
    failed = !order || !scratchpad || dnnl.memory_desc_clone(&slice->weights, order) ||
             dnnl.memory_desc_clone(&slice->scratchpad, scratchpad) ||
             !(slice->packed = packed_weights(state, order)) || dnnl.primitive_create(&slice->primitive, desc);
done:
    if (desc) dnnl.primitive_desc_destroy(desc);
    if (weights) dnnl.memory_desc_destroy(weights);
    if (attributes) dnnl.primitive_attr_destroy(attributes);
    return !failed;
}

/* Free what was prepared for a product that the library cannot compute. */
static void release(State *state) {
    for (int64_t i = 0; i < MAX_SLICES; i++) {
        Slice *slice = &state->slices[i];
        if (slice->primitive) dnnl.primitive_destroy(slice->primitive);
        Handle descs[] = {slice->src, slice->weights, slice->dst, slice->scratchpad};
        for (size_t j = 0; j < sizeof descs / sizeof *descs; j++)
            if (descs[j]) dnnl.memory_desc_destroy(descs[j]);
        for (size_t j = 0; j < MAX_POST_OPS; j++)
            if (slice->tensors[j]) dnnl.memory_desc_destroy(slice->tensors[j]);
    }
    memset(state->slices, 0, sizeof state->slices);
    while (state->packed) {
        Packed *packed = state->packed;
        state->packed = packed->next;
        dnnl.memory_desc_destroy(packed->order);
        free(packed->data);
        free(packed);
    }
}

static State *find_state(const char *text, const int64_t *key) {
    State *state = states;
    while (state && (state->key[0] != key[0] || state->key[1] != key[1] ||
                     (state->text != text && strcmp(state->text, text) != 0)))
        state = state->next;
    return state;
}

/* Return the state of a kernel's product by these weights, or null: the kernel computes it itself.
 *
 * `text` is the kernel's, `key` a digest of the weights.
 */
void *tunefarm_onednn_ready(const char *text, const int64_t *key, const void *weights) {
    pthread_once(&once, find_library);
    if (!loaded) return NULL;
    pthread_mutex_lock(&lock);
    State *state = find_state(text, key);
    if (!state && (state = calloc(1, sizeof *state))) {
        state->text = text;
        memcpy(state->key, key, sizeof state->key);
        int others = begin_alone(); /* oneDNN fixes the number when it makes a primitive */
        int usable = read_product(text, state) && (state->plain = plain_weights(&state->product, weights));
        for (int64_t i = 0; usable && i < state->product.slices; i++) usable = prepare(state, i);
        end_alone(others);
        free(state->plain);
        state->plain = NULL;
        if (!usable) release(state);
        state->usable = usable;
        state->next = states;
        states = state;
    }
    pthread_mutex_unlock(&lock);
    return state && __atomic_load_n(&state->usable, __ATOMIC_ACQUIRE) ? state : NULL;
}

static int run_slice(State *state, const Slice *slice, const char *src, char *dst, const char *const *tensors) {
    Thread *thread = this_thread();
    if (!thread) return 0;
    size_t needed = dnnl.memory_desc_get_size(slice->scratchpad);
    if (needed > thread->scratch_size) {
        free(thread->scratch);
        thread->scratch = aligned_alloc(64, (needed + 63) / 64 * 64);
        thread->scratch_size = thread->scratch ? needed : 0;
    }
    Argument arguments[4 + MAX_POST_OPS];
    int count = 0, failed = needed > thread->scratch_size;
#define PASS(name, desc, pointer)                                                                             \
    do {                                                                                                      \
        arguments[count].arg = (name);                                                                        \
        arguments[count].memory = NULL;                                                                       \
        failed = failed || dnnl.memory_create(&arguments[count++].memory, (desc), engine, (void *)(pointer)); \
    } while (0)
    PASS(ARG_SRC, slice->src, src + slice->src_offset);
    PASS(ARG_DST, slice->dst, dst + slice->dst_offset);
    PASS(ARG_WEIGHTS, slice->weights, slice->packed);
    PASS(ARG_SCRATCHPAD, slice->scratchpad, thread->scratch);
    for (int64_t i = 0; i < state->product.post_ops; i++) {
        const PostOp *op = &state->post_ops[i];
        if (op->tensor < 0) continue;
        int64_t offset = op->elements != ALL ? 0 : slice->pixel_offset * state->product.out_channels * size_of(op->type);
        PASS((int)(ARG_POST_OP * (i + 1)) | ARG_SRC_1, slice->tensors[i], tensors[op->tensor] + offset);
    }
#undef PASS
    failed = failed || dnnl.primitive_execute(slice->primitive, thread->stream, count, arguments);
    for (int i = 0; i < count; i++)
        if (arguments[i].memory) dnnl.memory_destroy(arguments[i].memory);
    return !failed;
}

/* Compute one slice; `tensors` are those that the steps after the product read. */
void tunefarm_onednn_run(void *opaque, int number, const char *src, char *dst, const char *tensor0, const char *tensor1,
                         const char *tensor2, const char *tensor3) {
    const char *tensors[MAX_TENSORS] = {tensor0, tensor1, tensor2, tensor3};
    State *state = opaque;
    const Slice *slice = &state->slices[number];
    if (!slice->primitive) return;
    int others = begin_alone();
    if (!run_slice(state, slice, src, dst, tensors)) __atomic_store_n(&state->usable, 0, __ATOMIC_RELEASE);
    end_alone(others);
}

/* Return whether all slices were computed: where one failed, without memory for instance, the kernel computes them itself. */
int tunefarm_onednn_done(const void *opaque) {
    const State *state = opaque;
    return state && __atomic_load_n(&state->usable, __ATOMIC_ACQUIRE);
}

/* oneDNN's objects stay: at the end of the process its library may be gone already. */
__attribute__((destructor)) static void free_memory(void) {
    if (!loaded) return;
    pthread_key_delete(own_thread);
    while (threads) {
        Thread *thread = threads;
        threads = thread->next;
        free(thread->scratch);
        free(thread);
    }
    while (states) {
        State *state = states;
        states = state->next;
        while (state->packed) {
            Packed *packed = state->packed;
            state->packed = packed->next;
            free(packed->data);
            free(packed);
        }
        free(state);
    }
}
