/* The first layer over a picture, for pictures whose squares are places in a book.
 *
 * A square in a place adds the same numbers to the layer wherever it is seen, and few pairs of place and square are
 * different. So the numbers of a pair are worked out once, and pictures add them up; backwards, what pictures send to a
 * pair is added up first. Called inside XLA's programs for the CPU, and shares XLA's threads, one lane each.
 */
#include <string.h>

#include "xla.h"

#define LANES 8 /* numbers that are worked on side by side */
#define WIDE 8  /* of them times LANES stay in registers */

typedef float Lane __attribute__((vector_size(4 * LANES)));

/* One lane's sizes; `places` of a picture, each with `features` numbers of its square. */
typedef struct {
    int64_t pictures, places, squares, features, hidden;
} Shape;

typedef struct {
    int64_t count;
    int32_t *place, *square; /* of every pair */
    int32_t *of;             /* (pictures, places): the pair that is seen there */
} Pairs;

typedef struct {
    Shape shape;
    const float *weights;  /* (lanes, hidden, places * features) */
    const float *squares;  /* (lanes, squares, features) */
    const float *slopes;   /* (lanes, pictures, hidden): backwards only */
    const int32_t *places; /* (lanes, pictures, places) */
    float *out;            /* (lanes, pictures, hidden): forwards only */
    float *to_weights, *to_squares;
    atomic_int failed;
} Layer;

static void forget(Pairs *pairs) {
    free(pairs->of);
    free(pairs->place);
}

/* Number the different pairs in the order in which they are met; 0 where there is no memory. */
static int find_pairs(const Shape *s, const int32_t *seen, Pairs *pairs) {
    int64_t all = s->pictures * s->places, most = s->places * s->squares;
    most = all < most ? all : most;
    int32_t *known = calloc(s->places * s->squares + 1, sizeof *known);
    pairs->of = malloc(sizeof(int32_t) * (all + 1));
    pairs->place = malloc(2 * sizeof(int32_t) * (most + 1));
    pairs->square = pairs->place + most;
    pairs->count = 0;
    if (!known || !pairs->of || !pairs->place) {
        free(known);
        forget(pairs);
        return 0;
    }
    for (int64_t picture = 0; picture < s->pictures; picture++)
        for (int64_t place = 0; place < s->places; place++) {
            int64_t square = seen[picture * s->places + place];
            square = square < 0 ? 0 : square < s->squares ? square : s->squares - 1; /* as XLA does it */
            int32_t *number = known + place * s->squares + square;
            if (!*number) {
                pairs->place[pairs->count] = (int32_t)place, pairs->square[pairs->count] = (int32_t)square;
                *number = (int32_t)++pairs->count;
            }
            pairs->of[picture * s->places + place] = *number - 1;
        }
    free(known);
    return 1;
}

static inline float dot(const float *u, const float *v, int64_t count) {
    float sum = 0.0f;
    Lane lanes = {0};
    int64_t k = 0;
    for (; k + LANES <= count; k += LANES) {
        Lane a, b;
        memcpy(&a, u + k, sizeof a);
        memcpy(&b, v + k, sizeof b);
        lanes += a * b;
    }
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    for (; k < count; k++)
        sum += u[k] * v[k];
    return sum;
}

/* out = the sum of these rows of a table, (.., hidden). */
static void add_up(const float *table, const int32_t *rows, int64_t count, int64_t hidden, float *out) {
    int64_t h = 0;
    for (; h + WIDE * LANES <= hidden; h += WIDE * LANES) {
        Lane sums[WIDE] = {0};
        for (int64_t i = 0; i < count; i++) {
            const float *row = table + rows[i] * hidden + h;
            for (int j = 0; j < WIDE; j++) {
                Lane some;
                memcpy(&some, row + j * LANES, sizeof some);
                sums[j] += some;
            }
        }
        memcpy(out + h, sums, sizeof sums);
    }
    for (; h < hidden; h++) {
        out[h] = 0.0f;
        for (int64_t i = 0; i < count; i++)
            out[h] += table[rows[i] * hidden + h];
    }
}

static void forwards(void *on, int64_t lane) {
    Layer *layer = on;
    const Shape *s = &layer->shape;
    int64_t inputs = s->places * s->features;
    const float *weights = layer->weights + lane * s->hidden * inputs;
    const float *squares = layer->squares + lane * s->squares * s->features;
    Pairs pairs;
    if (!find_pairs(s, layer->places + lane * s->pictures * s->places, &pairs)) {
        atomic_store(&layer->failed, 1);
        return;
    }
    float *sums = malloc(sizeof(float) * (pairs.count * s->hidden + 1));
    if (sums) {
        for (int64_t p = 0; p < pairs.count; p++)
            for (int64_t h = 0; h < s->hidden; h++)
                sums[p * s->hidden + h] = dot(weights + h * inputs + pairs.place[p] * s->features,
                                              squares + pairs.square[p] * s->features, s->features);
        for (int64_t i = 0; i < s->pictures; i++)
            add_up(sums, pairs.of + i * s->places, s->places, s->hidden,
                   layer->out + (lane * s->pictures + i) * s->hidden);
    } else
        atomic_store(&layer->failed, 1);
    free(sums);
    forget(&pairs);
}

static void backwards(void *on, int64_t lane) {
    Layer *layer = on;
    const Shape *s = &layer->shape;
    int64_t inputs = s->places * s->features, features = s->features;
    const float *weights = layer->weights + lane * s->hidden * inputs;
    const float *squares = layer->squares + lane * s->squares * features;
    float *to_weights = layer->to_weights + lane * s->hidden * inputs;
    float *to_squares = layer->to_squares + lane * s->squares * features;
    memset(to_weights, 0, sizeof(float) * s->hidden * inputs);
    memset(to_squares, 0, sizeof(float) * s->squares * features);
    Pairs pairs;
    if (!find_pairs(s, layer->places + lane * s->pictures * s->places, &pairs)) {
        atomic_store(&layer->failed, 1);
        return;
    }
    float *sums = calloc(pairs.count * s->hidden + 1, sizeof(float));
    if (sums) {
        for (int64_t i = 0; i < s->pictures; i++) {
            const float *slope = layer->slopes + (lane * s->pictures + i) * s->hidden;
            for (int64_t place = 0; place < s->places; place++) {
                float *sum = sums + pairs.of[i * s->places + place] * s->hidden;
                for (int64_t h = 0; h < s->hidden; h++)
                    sum[h] += slope[h];
            }
        }
        for (int64_t p = 0; p < pairs.count; p++) {
            const float *sum = sums + p * s->hidden, *square = squares + pairs.square[p] * features;
            float *to_square = to_squares + pairs.square[p] * features;
            for (int64_t h = 0; h < s->hidden; h++) {
                int64_t at = h * inputs + pairs.place[p] * features;
                for (int64_t k = 0; k < features; k++) {
                    to_weights[at + k] += sum[h] * square[k];
                    to_square[k] += sum[h] * weights[at + k];
                }
            }
        }
    } else
        atomic_store(&layer->failed, 1);
    free(sums);
    forget(&pairs);
}

/* The sizes, from (weights, squares, places) as they stand among what was given. */
static Shape shape_of(const XLA_FFI_Buffer *weights, const XLA_FFI_Buffer *squares, const XLA_FFI_Buffer *places) {
    const int64_t *w = weights->dims + weights->rank, *q = squares->dims + squares->rank, *p = places->dims + places->rank;
    Shape shape = {p[-2], p[-1], q[-2], q[-1], w[-2]};
    return shape;
}

static int64_t lanes_of(const XLA_FFI_Buffer *places) {
    int64_t lanes = 1;
    for (int64_t i = 0; i + 2 < places->rank; i++)
        lanes *= places->dims[i];
    return lanes;
}

static XLA_FFI_Error *done(const XLA_FFI_CallFrame *frame, Layer *layer) {
    return atomic_load(&layer->failed) ? no_memory(frame) : 0;
}

/* (weights, squares, places) -> the layer without its bias. */
XLA_FFI_Error *picture_forwards(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return 0;
    if (frame->args.size != 3 || frame->rets.size != 1 || !all_are(frame, 0, 2, XLA_FFI_DataType_F32) ||
        !all_are(frame, 2, 1, XLA_FFI_DataType_S32))
        return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "picture_forwards takes two arrays of float32 and one of int32");
    const XLA_FFI_Buffer *weights = given(frame, 0), *squares = given(frame, 1), *places = given(frame, 2);
    Layer layer = {shape_of(weights, squares, places), weights->data, squares->data, 0, places->data,
                   wanted(frame, 0)->data, 0, 0, 0};
    int64_t lanes = lanes_of(places);
    share_out(frame, forwards, &layer, lanes, count_of(places) * layer.shape.hidden);
    return done(frame, &layer);
}

/* (slopes, weights, squares, places) -> the slopes of weights and squares. */
XLA_FFI_Error *picture_backwards(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return 0;
    if (frame->args.size != 4 || frame->rets.size != 2 || !all_are(frame, 0, 3, XLA_FFI_DataType_F32) ||
        !all_are(frame, 3, 1, XLA_FFI_DataType_S32))
        return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "picture_backwards takes three arrays of float32 and one of int32");
    const XLA_FFI_Buffer *weights = given(frame, 1), *squares = given(frame, 2), *places = given(frame, 3);
    Layer layer = {shape_of(weights, squares, places), weights->data, squares->data, given(frame, 0)->data, places->data,
                   0, wanted(frame, 0)->data, wanted(frame, 1)->data, 0};
    int64_t lanes = lanes_of(places);
    share_out(frame, backwards, &layer, lanes, count_of(places) * layer.shape.hidden);
    return done(frame, &layer);
}
