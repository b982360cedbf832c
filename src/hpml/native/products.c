/* What the plug-in asks of C: inner products and combinations of many long vectors from one reading of them.
 *
 * It is called inside XLA's programs for the CPU, by XLA's foreign function interface, and shares XLA's threads. Entries
 * are float32, or of 16 bits in a combination; differences and sums of products are float64. A sum is cut into blocks at
 * the same entries every time, and the blocks are added in their order: a result depends neither on the number of threads
 * nor on who did what.
 */
#include "xla.h"

#define BLOCK 6144      /* entries of a vector that are read in one go; the sample's own stay near meanwhile */
#define LONGEST 32768   /* the same, where a result does not depend on it */
#define PIECES 8        /* stretches that every thread should have there */
#define LINE 16         /* entries that memory hands over together */
#define AHEAD 256       /* entries of a row that are fetched before their turn, into the nearest cache */
#define KINDS 6         /* distance, toward, back, gram, gap_back, gap_gram */
#define WAYS 4          /* sums of one kind that do not wait for each other */

/* Numbers that are added side by side, and rows that are: more streams from memory hide each other's delays, as long as
 * their sums stay in registers. */
#ifdef __AVX512F__
#include <immintrin.h>
#define LANES 8
#define ABREAST 4
#else
#define LANES 4
#define ABREAST 2
#endif

typedef float Singles __attribute__((vector_size(4 * LANES)));
typedef double Doubles __attribute__((vector_size(8 * LANES)));

/* ---- Blocks of entries ---- */

static int64_t blocks_of(int64_t width) { return (width + BLOCK - 1) / BLOCK; }

static int64_t length_of(int64_t width, int64_t start) { return width - start < BLOCK ? width - start : BLOCK; }

/* Entries that one thread forms in one go, where a result does not depend on it: many, for long reading, but every
 * thread has several, since one may come late. */
static int64_t stretch_of(int64_t entries, int64_t threads) {
    int64_t share = entries / (PIECES * threads) / LINE * LINE;
    return share < BLOCK ? BLOCK : share < LONGEST ? share : LONGEST;
}

static inline __attribute__((always_inline)) Doubles widen(const float *from) {
#ifdef __AVX512F__
    return (Doubles)_mm512_cvtps_pd(_mm256_loadu_ps(from)); /* of the other way GCC makes five instructions */
#else
    Singles s;
    memcpy(&s, from, sizeof s);
    return __builtin_convertvector(s, Doubles);
#endif
}

static double total(Doubles sums) {
    double sum = 0.0;
    for (int i = 0; i < LANES; i++)
        sum += sums[i];
    return sum;
}

static double sum_of(const Doubles sums[WAYS]) {
    Doubles sum = sums[0];
    for (int way = 1; way < WAYS; way++)
        sum += sums[way];
    return total(sum);
}

/* |f|^2 under diag(w), where there is a w. */
static double energy_of(const float *f, const float *w, int64_t width) {
    Doubles sums[WAYS] = {0};
    int64_t j = 0;
    for (; j + LANES * WAYS <= width; j += LANES * WAYS)
        for (int way = 0; way < WAYS; way++) {
            Doubles fj = widen(f + j + way * LANES);
            sums[way] += w ? fj * fj * widen(w + j + way * LANES) : fj * fj;
        }
    double sum = sum_of(sums);
    for (; j < width; j++)
        sum += (double)f[j] * f[j] * (w ? w[j] : 1.0);
    return sum;
}

/* ---- One sample with every row of a history ---- */

typedef struct {
    int64_t rows, width, blocks;
    const float *X, *F;         /* (lanes, rows, width) */
    const float *x, *f, *g, *w; /* (lanes, width); g and w may be absent */
    double *parts;              /* (lanes, blocks, KINDS, rows) */
    double *energies;           /* (lanes, blocks) */
} Rows;

/* One block of some rows, from row `first` on; what is beyond the last is the last once more. `gap` and `weighed` are
 * constants wherever this is called, so that each case has its own loop. */
static inline __attribute__((always_inline)) void rows_abreast(
    const Rows *rows, int64_t first, int64_t lane, int64_t start, int64_t width, int gap, int weighed, double *parts) {
    const float *X[ABREAST], *F[ABREAST], *x, *f, *g, *w;
    int64_t row[ABREAST], sample = lane * rows->width + start, last = rows->rows - 1;
    for (int k = 0; k < ABREAST; k++) {
        row[k] = first + k < last ? first + k : last;
        X[k] = rows->X + (lane * rows->rows + row[k]) * rows->width + start;
        F[k] = rows->F + (lane * rows->rows + row[k]) * rows->width + start;
    }
    x = rows->x + sample, f = rows->f + sample, g = gap ? rows->g + sample : 0, w = weighed ? rows->w + sample : 0;
    Doubles sums[KINDS][ABREAST] = {0};
    int64_t j = 0;
    for (; j + LINE <= width; j += LINE) {
        for (int k = 0; k < ABREAST; k++) {
            __builtin_prefetch(X[k] + j + AHEAD, 0, 3);
            __builtin_prefetch(F[k] + j + AHEAD, 0, 3);
        }
        for (int64_t e = j; e < j + LINE; e += LANES) {
            Doubles xe = widen(x + e), fe = widen(f + e), ge = {0}, we = {0};
            if (gap)
                ge = widen(g + e);
            if (weighed)
                we = widen(w + e), fe *= we, ge *= we;
            for (int k = 0; k < ABREAST; k++) {
                Doubles dx = widen(X[k] + e) - xe, Fe = widen(F[k] + e), wdx = weighed ? dx * we : dx;
                sums[0][k] += dx * wdx, sums[1][k] -= Fe * wdx, sums[2][k] += dx * fe, sums[3][k] += Fe * fe;
                if (gap)
                    sums[4][k] += dx * ge, sums[5][k] += Fe * ge;
            }
        }
    }
    for (int k = 0; k < ABREAST; k++) {
        double out[KINDS];
        for (int kind = 0; kind < KINDS; kind++)
            out[kind] = total(sums[kind][k]);
        for (int64_t e = j; e < width; e++) {
            double wj = weighed ? w[e] : 1.0, dx = (double)X[k][e] - x[e], fj = wj * f[e];
            out[0] += dx * wj * dx, out[1] -= F[k][e] * wj * dx, out[2] += dx * fj, out[3] += F[k][e] * fj;
            if (gap)
                out[4] += dx * wj * g[e], out[5] += F[k][e] * wj * g[e];
        }
        for (int kind = 0; kind < KINDS; kind++)
            parts[kind * rows->rows + row[k]] = out[kind];
    }
}

static inline __attribute__((always_inline)) void one_block(const Rows *rows, int64_t task, int gap, int weighed) {
    int64_t lane = task / rows->blocks, start = task % rows->blocks * BLOCK, from = lane * rows->width + start;
    int64_t width = length_of(rows->width, start);
    for (int64_t first = 0; first < rows->rows; first += ABREAST)
        rows_abreast(rows, first, lane, start, width, gap, weighed, rows->parts + task * KINDS * rows->rows);
    rows->energies[task] = energy_of(rows->f + from, weighed ? rows->w + from : 0, width);
}

static void one_task(void *on, int64_t task) {
    const Rows *rows = on;
    if (rows->g && rows->w)
        one_block(rows, task, 1, 1);
    else if (rows->g)
        one_block(rows, task, 1, 0);
    else if (rows->w)
        one_block(rows, task, 0, 1);
    else
        one_block(rows, task, 0, 0);
}

/* (X, F, x, f, g, w) -> (sums, energy): see `products.py`. g and w have no entries where there are none. */
XLA_FFI_Error *row_products(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return 0;
    if (frame->args.size != 6 || frame->rets.size != 2 || given(frame, 0)->rank < 2 ||
        !all_are(frame, 0, 6, XLA_FFI_DataType_F32))
        return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "row_products takes six arrays of float32");
    const XLA_FFI_Buffer *X = given(frame, 0), *g = given(frame, 4), *w = given(frame, 5);
    int64_t rows = X->dims[X->rank - 2], width = X->dims[X->rank - 1], blocks = blocks_of(width);
    int64_t lanes = count_of(wanted(frame, 1)), tasks = lanes * blocks, each = KINDS * rows;
    double *parts = malloc(sizeof(double) * (tasks * (each + 1) + 1));
    if (!parts)
        return no_memory(frame);
    Rows all = {rows, width, blocks, X->data, given(frame, 1)->data, given(frame, 2)->data, given(frame, 3)->data,
                count_of(g) ? g->data : 0, count_of(w) ? w->data : 0, parts, parts + tasks * each};
    share_out(frame, one_task, &all, tasks, 2 * count_of(X));

    double *sums = wanted(frame, 0)->data, *energy = wanted(frame, 1)->data;
    memset(sums, 0, sizeof(double) * lanes * each);
    memset(energy, 0, sizeof(double) * lanes);
    for (int64_t task = 0; task < tasks; task++) {
        int64_t lane = task / blocks;
        for (int64_t i = 0; i < each; i++)
            sums[lane * each + i] += parts[task * each + i];
        energy[lane] += all.energies[task];
    }
    free(parts);
    return 0;
}

/* ---- A combination of rows ---- */

#define TOGETHER 8 /* rows that are added in one go: the processor itself fetches what comes next of so many */
#define WIDE (2 * LANES) /* entries of a row that are */

typedef float Many __attribute__((vector_size(4 * WIDE)));
typedef uint16_t Halves __attribute__((vector_size(2 * WIDE)));
typedef uint32_t Bits __attribute__((vector_size(4 * WIDE)));

typedef struct {
    int64_t place; /* where its row begins, in entries */
    float a, b;
} Term;

typedef struct {
    int64_t rows, width, stretch, blocks, count, brief;
    const void *X, *F; /* (lanes, rows, width), float32 or, where `brief`, of 16 bits */
    const float *x;    /* (lanes, width), or nothing */
    float *out;        /* (lanes, width) */
    Term *terms;       /* (lanes, count): those that count come first, and zeros fill up the last group */
    int64_t *counting; /* (lanes) */
    float *wholes;     /* (lanes) sum of a */
} Combination;

/* The terms of a lane that count. A row that is not there is the nearest that is, as XLA does it. */
static void sort_terms(Combination *all, int64_t lane, const int32_t *which, const float *a, const float *b, int64_t n) {
    Term *terms = all->terms + lane * all->count;
    int64_t found = 0;
    all->wholes[lane] = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        all->wholes[lane] += a[i];
        if (a[i] == 0.0f && b[i] == 0.0f)
            continue;
        int64_t row = which[i] < 0 ? 0 : which[i] < all->rows ? which[i] : all->rows - 1;
        terms[found++] = (Term){(lane * all->rows + row) * all->width, a[i], b[i]};
    }
    for (; found % TOGETHER; found++)
        terms[found] = (Term){terms[0].place, 0.0f, 0.0f};
    all->counting[lane] = found;
}

static inline __attribute__((always_inline)) float entry(const void *from, int64_t place, int brief) {
    return brief ? from_brief(((const uint16_t *)from)[place]) : ((const float *)from)[place];
}

static inline __attribute__((always_inline)) Many entries(const void *from, int64_t place, int brief) {
    Many values;
    if (brief) {
        Halves halves;
        memcpy(&halves, (const uint16_t *)from + place, sizeof halves);
        Bits bits = __builtin_convertvector(halves, Bits) << 16;
        memcpy(&values, &bits, sizeof values);
    } else
        memcpy(&values, (const float *)from + place, sizeof values);
    return values;
}

/* `brief` is a constant wherever this is called. */
static inline __attribute__((always_inline)) void add_terms(
    const Combination *all, const Term *term, const Term *end, int64_t start, int64_t width, int brief, float *out) {
    for (; term < end; term += TOGETHER) {
        int64_t j = 0;
        for (; j + WIDE <= width; j += WIDE) {
            Many sum;
            memcpy(&sum, out + j, sizeof sum);
            for (int k = 0; k < TOGETHER; k++) {
                int64_t at = term[k].place + start + j;
                sum += term[k].a * entries(all->X, at, brief) + term[k].b * entries(all->F, at, brief);
            }
            memcpy(out + j, &sum, sizeof sum);
        }
        for (; j < width; j++)
            for (int k = 0; k < TOGETHER; k++) {
                int64_t at = term[k].place + start + j;
                out[j] += term[k].a * entry(all->X, at, brief) + term[k].b * entry(all->F, at, brief);
            }
    }
}

static void one_stretch(void *on, int64_t task) {
    const Combination *all = on;
    int64_t lane = task / all->blocks, start = task % all->blocks * all->stretch;
    int64_t width = all->width - start < all->stretch ? all->width - start : all->stretch;
    const Term *terms = all->terms + lane * all->count, *end = terms + all->counting[lane];
    float *out = all->out + lane * all->width + start;
    const float *x = all->x ? all->x + lane * all->width + start : 0;
    for (int64_t j = 0; j < width; j++)
        out[j] = x ? -all->wholes[lane] * x[j] : 0.0f;
    if (all->brief)
        add_terms(all, terms, end, start, width, 1, out);
    else
        add_terms(all, terms, end, start, width, 0, out);
}

/* (X, F, x, which, a, b) -> sum_i a_i (X[which_i] - x) + b_i F[which_i]; x has no entries where it is 0. */
XLA_FFI_Error *row_combination(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return 0;
    if (frame->args.size != 6 || frame->rets.size != 1 || given(frame, 0)->rank < 2 ||
        !(all_are(frame, 0, 2, XLA_FFI_DataType_F32) || all_are(frame, 0, 2, XLA_FFI_DataType_U16)) ||
        !all_are(frame, 2, 1, XLA_FFI_DataType_F32) || !all_are(frame, 3, 1, XLA_FFI_DataType_S32) ||
        !all_are(frame, 4, 2, XLA_FFI_DataType_F32))
        return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT,
                      "row_combination: rows of float32 or uint16, int32 which, and float32");
    const XLA_FFI_Buffer *X = given(frame, 0), *x = given(frame, 2), *which = given(frame, 3);
    int64_t rows = X->dims[X->rank - 2], width = X->dims[X->rank - 1], given_rows = which->dims[which->rank - 1];
    int64_t lanes = 1, brief = X->dtype == XLA_FFI_DataType_U16;
    for (int64_t axis = 0; axis + 2 < X->rank; axis++)
        lanes *= X->dims[axis];
    int64_t stretch = stretch_of(lanes * width, threads_of(frame)), count = given_rows + TOGETHER;
    Combination all = {rows, width, stretch, (width + stretch - 1) / stretch, count, brief, X->data,
                       given(frame, 1)->data, count_of(x) ? x->data : 0, wanted(frame, 0)->data, 0, 0, 0};
    char *room = malloc(lanes * (all.count * sizeof(Term) + sizeof(int64_t) + sizeof(float)) + 1);
    if (!room)
        return no_memory(frame);
    all.terms = (Term *)room, all.counting = (int64_t *)(all.terms + lanes * all.count);
    all.wholes = (float *)(all.counting + lanes);
    const int32_t *ask = which->data;
    const float *a = given(frame, 4)->data, *b = given(frame, 5)->data;
    for (int64_t lane = 0; lane < lanes; lane++, ask += given_rows, a += given_rows, b += given_rows)
        sort_terms(&all, lane, ask, a, b, given_rows);
    share_out(frame, one_stretch, &all, lanes * all.blocks, 2 * lanes * given_rows * width);
    free(room);
    return 0;
}

/* ---- A row ---- */

typedef struct {
    int64_t rows, width, stretch, blocks;
    float *X, *F;       /* (lanes, rows, width) */
    const float *x, *f; /* (lanes, width) */
    const int32_t *at, *whole;
} Writing;

static void one_piece_of_a_row(void *on, int64_t task) {
    const Writing *all = on;
    int64_t lane = task / all->blocks, start = task % all->blocks * all->stretch, at = all->at[lane];
    int64_t width = all->width - start < all->stretch ? all->width - start : all->stretch;
    int64_t to = (lane * all->rows + (at < 0 ? 0 : at < all->rows ? at : all->rows - 1)) * all->width + start;
    int64_t from = lane * all->width + start, bytes = sizeof(float) * width;
    if (all->whole[lane]) {
        memcpy(all->X + to, all->x + from, bytes);
        memcpy(all->F + to, all->f + from, bytes);
    } else {
        memset(all->X + to, 0, bytes);
        memset(all->F + to, 0, bytes);
    }
}

/* (X, F, x, f, at, whole) -> X and F with x and f, or zeros where they are not `whole`, in row `at`; in place. */
XLA_FFI_Error *row_writing(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return 0;
    if (frame->args.size != 6 || frame->rets.size != 2 || given(frame, 0)->rank < 2 ||
        !all_are(frame, 0, 4, XLA_FFI_DataType_F32) || !all_are(frame, 4, 2, XLA_FFI_DataType_S32))
        return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "row_writing: four arrays of float32, two of int32");
    const XLA_FFI_Buffer *X = given(frame, 0);
    for (int i = 0; i < 2; i++)
        if (wanted(frame, i)->data != given(frame, i)->data)
            memcpy(wanted(frame, i)->data, given(frame, i)->data, sizeof(float) * count_of(X));
    int64_t rows = X->dims[X->rank - 2], width = X->dims[X->rank - 1], lanes = count_of(given(frame, 4));
    int64_t stretch = stretch_of(lanes * width, threads_of(frame));
    Writing all = {rows, width, stretch, (width + stretch - 1) / stretch, wanted(frame, 0)->data, wanted(frame, 1)->data,
                   given(frame, 2)->data, given(frame, 3)->data, given(frame, 4)->data, given(frame, 5)->data};
    share_out(frame, one_piece_of_a_row, &all, lanes * all.blocks, 4 * lanes * width);
    return 0;
}

/* ---- Two trees ---- */

#define SUMS 3 /* |u|^2, <u, v>, |v|^2 */

typedef struct {
    const XLA_FFI_CallFrame *frame;
    int64_t leaves, lanes, blocks; /* blocks of a lane, of all leaves */
    double *parts;                 /* (lanes, blocks, SUMS) */
} Trees;

/* One stretch of two vectors; `same` is a constant wherever this is called. */
static inline __attribute__((always_inline)) void one_stretch_of_two(
    const float *u, const float *v, int64_t count, int same, double out[SUMS]) {
    Doubles sums[SUMS][WAYS] = {0};
    int64_t j = 0;
    for (; j + LANES * WAYS <= count; j += LANES * WAYS)
        for (int way = 0; way < WAYS; way++) {
            Doubles a = widen(u + j + way * LANES);
            sums[0][way] += a * a;
            if (!same) {
                Doubles b = widen(v + j + way * LANES);
                sums[1][way] += a * b, sums[2][way] += b * b;
            }
        }
    for (int kind = 0; kind < SUMS; kind++)
        out[kind] = sum_of(sums[same ? 0 : kind]);
    for (; j < count; j++)
        out[0] += (double)u[j] * u[j], out[1] += (double)u[j] * v[j], out[2] += (double)v[j] * v[j];
}

static void one_piece(void *on, int64_t task) {
    const Trees *trees = on;
    int64_t lane = task / trees->blocks, block = task % trees->blocks, leaf = 0, width;
    for (;; leaf++) {
        width = count_of(given(trees->frame, leaf)) / trees->lanes;
        if (block < blocks_of(width))
            break;
        block -= blocks_of(width);
    }
    int64_t from = lane * width + block * BLOCK, count = length_of(width, block * BLOCK);
    const float *u = (const float *)given(trees->frame, leaf)->data + from;
    const float *v = (const float *)given(trees->frame, trees->leaves + leaf)->data + from;
    if (u == v)
        one_stretch_of_two(u, v, count, 1, trees->parts + SUMS * task);
    else
        one_stretch_of_two(u, v, count, 0, trees->parts + SUMS * task);
}

/* (leaves of u, leaves of v) -> (|u|^2, <u, v>, |v|^2). */
XLA_FFI_Error *tree_products(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return 0;
    if (frame->args.size % 2 || frame->rets.size != SUMS || !all_are(frame, 0, frame->args.size, XLA_FFI_DataType_F32))
        return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "tree_products takes two trees of float32");
    Trees trees = {frame, frame->args.size / 2, count_of(wanted(frame, 0)), 0, 0};
    int64_t entries = 0;
    for (int64_t leaf = 0; trees.lanes && leaf < trees.leaves; leaf++) {
        int64_t count = count_of(given(frame, leaf));
        trees.blocks += blocks_of(count / trees.lanes), entries += 2 * count;
    }
    trees.parts = malloc(sizeof(double) * (SUMS * trees.lanes * trees.blocks + 1));
    if (!trees.parts)
        return no_memory(frame);
    share_out(frame, one_piece, &trees, trees.lanes * trees.blocks, entries);
    for (int64_t lane = 0; lane < trees.lanes; lane++)
        for (int kind = 0; kind < SUMS; kind++) {
            double sum = 0.0;
            for (int64_t block = 0; block < trees.blocks; block++)
                sum += trees.parts[SUMS * (lane * trees.blocks + block) + kind];
            ((float *)wanted(frame, kind)->data)[lane] = (float)sum;
        }
    free(trees.parts);
    return 0;
}
