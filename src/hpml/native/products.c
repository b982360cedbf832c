/* What a history's push asks of C: the sums of one sample with every row, from one reading of the rows.
 *
 * It is called inside XLA's programs for the CPU, by XLA's foreign function interface, and shares XLA's threads. Entries
 * are float32, differences and sums float64. A sum is cut into blocks at the same entries every time, and the blocks are
 * added in their order: a result depends neither on the number of threads nor on who did what.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

#define BLOCK 6144      /* entries of a row that are read in one go; the sample's own stay near meanwhile */
#define ALONE (1 << 17) /* entries of both buffers that are not worth waking another thread for */
#define LANES 4         /* numbers that are added side by side */
#define WAYS 2          /* sums of each kind that do not wait for each other */
#define LINE 16         /* entries that memory hands over together */
#define KINDS 6         /* distance, toward, back, gram, gap_back, gap_gram */

typedef float Singles __attribute__((vector_size(4 * LANES)));
typedef double Doubles __attribute__((vector_size(8 * LANES)));

typedef struct {
    int64_t lanes, rows, width, blocks;
    const float *X, *F;            /* (lanes, rows, width) */
    const float *x, *f, *g, *w;    /* (lanes, width); g and w may be absent */
    double *parts;                 /* (lanes, blocks, KINDS, rows) */
    double *energies;              /* (lanes, blocks) */
    atomic_llong next, done;
    atomic_int holders;            /* who may still look at this; the last one to leave frees it */
} Work;

/* The entries of a block in float64, so that they are turned once for all rows. */
typedef struct {
    double x[BLOCK], f[BLOCK], g[BLOCK], w[BLOCK];
} Sample;

static inline __attribute__((always_inline)) Doubles widen(const float *from) {
    Singles s;
    memcpy(&s, from, sizeof s);
    return __builtin_convertvector(s, Doubles);
}

static inline __attribute__((always_inline)) Doubles fetch(const double *from) {
    Doubles d;
    memcpy(&d, from, sizeof d);
    return d;
}

static void turn(const float *from, int64_t width, double *into) {
    for (int64_t j = 0; j < width; j++)
        into[j] = from[j];
}

/* One block of one row. `gap` and `weighed` are constants wherever this is called, so that each case has its own loop.
 * What comes next lies `ahead`, in the next row, where no processor expects it: it is fetched into the larger cache. */
static inline __attribute__((always_inline)) void one_row(
    const float *X, const float *F, const Sample *at, int64_t width, int64_t ahead, int gap, int weighed, double out[KINDS]) {
    Doubles sums[KINDS][WAYS] = {0};
    int64_t j = 0;
    for (; j + LANES * WAYS <= width; j += LANES * WAYS) {
        if (j % LINE == 0) {
            __builtin_prefetch(X + ahead + j, 0, 2);
            __builtin_prefetch(F + ahead + j, 0, 2);
        }
        for (int way = 0; way < WAYS; way++) {
            int64_t e = j + way * LANES;
            Doubles dx = widen(X + e) - fetch(at->x + e), Fj = widen(F + e), f = fetch(at->f + e), wdx = dx, wF = Fj;
            if (weighed) {
                Doubles w = fetch(at->w + e);
                wdx *= w, wF *= w;
            }
            sums[0][way] += dx * wdx, sums[1][way] -= Fj * wdx, sums[2][way] += wdx * f, sums[3][way] += wF * f;
            if (gap) {
                Doubles g = fetch(at->g + e);
                sums[4][way] += wdx * g, sums[5][way] += wF * g;
            }
        }
    }
    for (int kind = 0; kind < KINDS; kind++) {
        out[kind] = 0.0;
        for (int way = 0; way < WAYS; way++)
            for (int i = 0; i < LANES; i++)
                out[kind] += sums[kind][way][i];
    }
    for (; j < width; j++) {
        double w = weighed ? at->w[j] : 1.0, dx = X[j] - at->x[j], wdx = w * dx, wF = w * F[j];
        out[0] += dx * wdx, out[1] -= F[j] * wdx, out[2] += wdx * at->f[j], out[3] += wF * at->f[j];
        if (gap)
            out[4] += wdx * at->g[j], out[5] += wF * at->g[j];
    }
}

static inline __attribute__((always_inline)) void one_block(Work *work, int64_t task, int gap, int weighed) {
    int64_t lane = task / work->blocks, start = task % work->blocks * BLOCK, from = lane * work->width + start;
    int64_t width = work->width - start < BLOCK ? work->width - start : BLOCK;
    Sample at;
    turn(work->x + from, width, at.x);
    turn(work->f + from, width, at.f);
    if (gap)
        turn(work->g + from, width, at.g);
    if (weighed)
        turn(work->w + from, width, at.w);
    double *parts = work->parts + task * KINDS * work->rows;
    for (int64_t i = 0; i < work->rows; i++) {
        int64_t row = (lane * work->rows + i) * work->width + start;
        double out[KINDS];
        one_row(work->X + row, work->F + row, &at, width, i + 1 < work->rows ? work->width : 0, gap, weighed, out);
        for (int kind = 0; kind < KINDS; kind++)
            parts[kind * work->rows + i] = out[kind];
    }
    double energy = 0.0;
    for (int64_t j = 0; j < width; j++)
        energy += (weighed ? at.w[j] : 1.0) * at.f[j] * at.f[j];
    work->energies[task] = energy;
}

static void help(Work *work) {
    int64_t tasks = work->lanes * work->blocks;
    for (int64_t task; (task = atomic_fetch_add(&work->next, 1)) < tasks;) {
        if (work->g && work->w)
            one_block(work, task, 1, 1);
        else if (work->g)
            one_block(work, task, 1, 0);
        else if (work->w)
            one_block(work, task, 0, 1);
        else
            one_block(work, task, 0, 0);
        atomic_fetch_add(&work->done, 1);
    }
}

static void leave(Work *work) {
    if (atomic_fetch_sub(&work->holders, 1) > 1)
        return;
    free(work->parts);
    free(work);
}

static void helper(void *given) {
    help(given);
    leave(given);
}

/* Ask XLA's threads for help. Who comes late finds nothing left to do; nobody waits for who has not begun. */
static void call_helpers(const XLA_FFI_CallFrame *frame, Work *work) {
    int64_t threads = 1, tasks = work->lanes * work->blocks;
    XLA_FFI_ThreadPool_NumThreads_Args count = {XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, 0, frame->ctx, &threads};
    XLA_FFI_Error *error = frame->api->XLA_FFI_ThreadPool_NumThreads(&count);
    for (int64_t i = 1; !error && i < threads && i < tasks; i++) {
        atomic_fetch_add(&work->holders, 1);
        XLA_FFI_ThreadPool_Schedule_Args task = {
            XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, 0, frame->ctx, helper, work};
        error = frame->api->XLA_FFI_ThreadPool_Schedule(&task);
        if (error)
            leave(work);
    }
    if (error) { /* no threads to be had: one is enough */
        XLA_FFI_Error_Destroy_Args gone = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, 0, error};
        frame->api->XLA_FFI_Error_Destroy(&gone);
    }
}

static XLA_FFI_Error *refuse(const XLA_FFI_Api *api, XLA_FFI_Error_Code code, const char *why) {
    XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, 0, why, code};
    return api->XLA_FFI_Error_Create(&args);
}

static int64_t count_of(const XLA_FFI_Buffer *buffer) {
    int64_t count = 1;
    for (int64_t i = 0; i < buffer->rank; i++)
        count *= buffer->dims[i];
    return count;
}

/* (X, F, x, f, g, w) -> (sums, energy): see `products.py`. g and w have no entries where there are none. */
XLA_FFI_Error *row_products(XLA_FFI_CallFrame *frame) {
    if (frame->extension_start && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
        /* Not a call: XLA asks which version of its interface this was written for. */
        XLA_FFI_Metadata *about = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
        about->api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
        about->api_version.extension_start = 0;
        about->api_version.major_version = XLA_FFI_API_MAJOR;
        about->api_version.minor_version = XLA_FFI_API_MINOR;
        about->traits = 0;
        about->state_type_id.type_id = 0;
        return 0;
    }
    if (frame->args.size != 6 || frame->rets.size != 2)
        return refuse(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "row_products: 6 arrays in, 2 out");
    const XLA_FFI_Buffer **in = (const XLA_FFI_Buffer **)frame->args.args;
    XLA_FFI_Buffer **out = (XLA_FFI_Buffer **)frame->rets.rets;
    for (int i = 0; i < 6; i++)
        if (in[i]->dtype != XLA_FFI_DataType_F32)
            return refuse(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "row_products: float32 in");
    if (in[0]->rank < 2 || out[0]->dtype != XLA_FFI_DataType_F64 || out[1]->dtype != XLA_FFI_DataType_F64)
        return refuse(frame->api, XLA_FFI_Error_Code_INVALID_ARGUMENT, "row_products: rows in, float64 out");

    Work *work = calloc(1, sizeof *work);
    if (!work)
        return refuse(frame->api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "row_products: out of memory");
    int64_t rows = in[0]->dims[in[0]->rank - 2], width = in[0]->dims[in[0]->rank - 1], all = count_of(in[0]);
    int64_t lanes = count_of(out[1]), blocks = (width + BLOCK - 1) / BLOCK;
    work->lanes = lanes, work->rows = rows, work->width = width, work->blocks = blocks;
    work->X = in[0]->data, work->F = in[1]->data, work->x = in[2]->data, work->f = in[3]->data;
    work->g = count_of(in[4]) ? in[4]->data : 0, work->w = count_of(in[5]) ? in[5]->data : 0;
    work->parts = malloc(sizeof(double) * (size_t)(lanes * blocks) * (KINDS * rows + 1) + 1);
    if (!work->parts) {
        free(work);
        return refuse(frame->api, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "row_products: out of memory");
    }
    work->energies = work->parts + lanes * blocks * KINDS * rows;
    atomic_init(&work->holders, 1);
    if (2 * all > ALONE)
        call_helpers(frame, work);
    help(work);
    while (atomic_load(&work->done) < lanes * blocks)
        sched_yield(); /* somebody is in the middle of a block */

    double *sums = out[0]->data, *energy = out[1]->data;
    memset(sums, 0, sizeof(double) * lanes * KINDS * rows);
    memset(energy, 0, sizeof(double) * lanes);
    for (int64_t task = 0; task < lanes * blocks; task++) {
        int64_t lane = task / blocks;
        for (int64_t i = 0; i < KINDS * rows; i++)
            sums[lane * KINDS * rows + i] += work->parts[task * KINDS * rows + i];
        energy[lane] += work->energies[task];
    }
    leave(work);
    return 0;
}
