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
    int64_t *starts; /* (places + 1): the first pair of every place */
    int32_t *square; /* of every pair */
    int32_t *of;     /* (pictures, places): the pair that is seen there */
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
    free(pairs->starts);
    free(pairs->square);
    free(pairs->of);
}

/* Number the different pairs, place after place; 0 where there is no memory. */
static int find_pairs(const Shape *s, const int32_t *seen, Pairs *pairs) {
    int64_t all = s->pictures * s->places, count = 0;
    int32_t *known = malloc(sizeof(int32_t) * (s->squares + 1)); /* the last pair of a square, in whatever place */
    pairs->starts = malloc(sizeof(int64_t) * (s->places + 1));
    pairs->square = malloc(sizeof(int32_t) * (all + 1));
    pairs->of = malloc(sizeof(int32_t) * (all + 1));
    if (!known || !pairs->starts || !pairs->square || !pairs->of) {
        free(known);
        forget(pairs);
        return 0;
    }
    memset(known, -1, sizeof(int32_t) * (s->squares + 1));
    for (int64_t place = 0; place < s->places; place++) {
        pairs->starts[place] = count;
        for (int64_t i = place; i < all; i += s->places) {
            int64_t square = seen[i];
            square = square < 0 ? 0 : square < s->squares ? square : s->squares - 1; /* as XLA does it */
            if (known[square] < pairs->starts[place]) {
                pairs->square[count] = (int32_t)square;
                known[square] = (int32_t)count++;
            }
            pairs->of[i] = known[square];
        }
    }
    pairs->starts[s->places] = count;
    free(known);
    return 1;
}

/* The weights of one place, (hidden, features) among others, as (features, hidden); and the other way round. */
static void turn(const float *weights, int64_t apart, const Shape *s, float *turned) {
    for (int64_t h = 0; h < s->hidden; h++)
        for (int64_t k = 0; k < s->features; k++)
            turned[k * s->hidden + h] = weights[h * apart + k];
}

static void turn_back(const float *turned, const Shape *s, int64_t apart, float *weights) {
    for (int64_t h = 0; h < s->hidden; h++)
        for (int64_t k = 0; k < s->features; k++)
            weights[h * apart + k] = turned[k * s->hidden + h];
}

static inline float dot(const float *restrict u, const float *restrict v, int64_t count) {
    float sum = 0.0f;
    Lane lanes[2] = {0};
    int64_t k = 0;
    for (; k + 2 * LANES <= count; k += 2 * LANES)
        for (int way = 0; way < 2; way++) {
            Lane a, b;
            memcpy(&a, u + k + way * LANES, sizeof a);
            memcpy(&b, v + k + way * LANES, sizeof b);
            lanes[way] += a * b;
        }
    for (int i = 0; i < LANES; i++)
        sum += lanes[0][i] + lanes[1][i];
    for (; k < count; k++)
        sum += u[k] * v[k];
    return sum;
}

static inline void add(float *restrict to, float factor, const float *restrict from, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        to[i] += factor * from[i];
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

/* sums[row] += the slopes of every picture that has it in a place. Mostly it is the row of the picture before. */
static void gather(const float *slopes, const int32_t *rows, int64_t apart, int64_t first, int64_t pictures,
                   int64_t hidden, float *sums) {
    int64_t h = 0;
    for (; h + WIDE * LANES <= hidden; h += WIDE * LANES) {
        Lane run[WIDE];
        for (int64_t i = 0; i < pictures;) {
            int32_t row = rows[i * apart];
            float *sum = sums + (row - first) * hidden + h;
            memcpy(run, sum, sizeof run);
            do {
                for (int j = 0; j < WIDE; j++) {
                    Lane some;
                    memcpy(&some, slopes + i * hidden + h + j * LANES, sizeof some);
                    run[j] += some;
                }
            } while (++i < pictures && rows[i * apart] == row);
            memcpy(sum, run, sizeof run);
        }
    }
    for (; h < hidden; h++)
        for (int64_t i = 0; i < pictures; i++)
            sums[(rows[i * apart] - first) * hidden + h] += slopes[i * hidden + h];
}

static void forwards(void *on, int64_t lane) {
    Layer *layer = on;
    const Shape *s = &layer->shape;
    int64_t inputs = s->places * s->features, hidden = s->hidden, features = s->features;
    const float *weights = layer->weights + lane * hidden * inputs;
    const float *squares = layer->squares + lane * s->squares * features;
    Pairs pairs;
    if (!find_pairs(s, layer->places + lane * s->pictures * s->places, &pairs)) {
        atomic_store(&layer->failed, 1);
        return;
    }
    float *turned = malloc(sizeof(float) * (features * hidden + 1));
    float *sums = calloc(pairs.starts[s->places] * hidden + 1, sizeof(float));
    if (turned && sums) {
        for (int64_t place = 0; place < s->places; place++) {
            turn(weights + place * features, inputs, s, turned);
            for (int64_t p = pairs.starts[place]; p < pairs.starts[place + 1]; p++)
                for (int64_t k = 0; k < features; k++)
                    add(sums + p * hidden, squares[pairs.square[p] * features + k], turned + k * hidden, hidden);
        }
        for (int64_t i = 0; i < s->pictures; i++)
            add_up(sums, pairs.of + i * s->places, s->places, hidden, layer->out + (lane * s->pictures + i) * hidden);
    } else
        atomic_store(&layer->failed, 1);
    free(turned);
    free(sums);
    forget(&pairs);
}

static void backwards(void *on, int64_t lane) {
    Layer *layer = on;
    const Shape *s = &layer->shape;
    int64_t inputs = s->places * s->features, hidden = s->hidden, features = s->features, most = 0;
    const float *weights = layer->weights + lane * hidden * inputs;
    const float *squares = layer->squares + lane * s->squares * features;
    const float *slopes = layer->slopes + lane * s->pictures * hidden;
    float *to_weights = layer->to_weights + lane * hidden * inputs;
    float *to_squares = layer->to_squares + lane * s->squares * features;
    memset(to_squares, 0, sizeof(float) * s->squares * features);
    Pairs pairs;
    if (!find_pairs(s, layer->places + lane * s->pictures * s->places, &pairs)) {
        atomic_store(&layer->failed, 1);
        return;
    }
    for (int64_t place = 0; place < s->places; place++) {
        int64_t count = pairs.starts[place + 1] - pairs.starts[place];
        most = count > most ? count : most;
    }
    float *turned = malloc(sizeof(float) * (2 * features * hidden + 1)), *to_turned = turned + features * hidden;
    float *sums = malloc(sizeof(float) * (most * hidden + 1));
    if (turned && sums) {
        for (int64_t place = 0; place < s->places; place++) {
            int64_t first = pairs.starts[place], count = pairs.starts[place + 1] - first;
            turn(weights + place * features, inputs, s, turned);
            memset(to_turned, 0, sizeof(float) * features * hidden);
            memset(sums, 0, sizeof(float) * count * hidden);
            gather(slopes, pairs.of + place, s->places, first, s->pictures, hidden, sums);
            for (int64_t p = 0; p < count; p++) {
                const float *sum = sums + p * hidden;
                int64_t square = pairs.square[first + p] * features;
                for (int64_t k = 0; k < features; k++) {
                    add(to_turned + k * hidden, squares[square + k], sum, hidden);
                    to_squares[square + k] += dot(sum, turned + k * hidden, hidden);
                }
            }
            turn_back(to_turned, s, inputs, to_weights + place * features);
        }
    } else
        atomic_store(&layer->failed, 1);
    free(turned);
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
