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
    /* Axes before the last two are lanes; an array that all lanes of an axis share has the length 1 there. */
    const XLA_FFI_Buffer *slopes;  /* (.., pictures, hidden): backwards only */
    const XLA_FFI_Buffer *weights; /* (.., hidden, places * features) */
    const XLA_FFI_Buffer *squares; /* (.., squares, features) */
    const XLA_FFI_Buffer *places;  /* (.., pictures, places) */
    XLA_FFI_Buffer *out;           /* the layer, or the slopes of weights */
    XLA_FFI_Buffer *to_squares;    /* the slopes of squares: backwards only */
    atomic_int failed;
} Layer;

/* Where the part of a lane begins in an array; `out` has every lane. */
static void *part_of(const Layer *layer, const XLA_FFI_Buffer *array, int64_t lane) {
    int64_t at = 0, stride = array->dims[array->rank - 1] * array->dims[array->rank - 2];
    for (int64_t axis = array->rank - 3; axis >= 0; axis--) {
        int64_t length = layer->out->dims[axis];
        at += array->dims[axis] == 1 ? 0 : lane % length * stride;
        stride *= array->dims[axis];
        lane /= length;
    }
    return (char *)array->data + 4 * at;
}

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

/* The weights of one place, (hidden, features) in rows `apart`, as (features, hidden). */
static void turn(const float *weights, int64_t apart, const Shape *s, float *turned) {
    for (int64_t h = 0; h < s->hidden; h++)
        for (int64_t k = 0; k < s->features; k++)
            turned[k * s->hidden + h] = weights[h * apart + k];
}

static inline __attribute__((always_inline)) Lane fetch(const float *from) {
    Lane some;
    memcpy(&some, from, sizeof some);
    return some;
}

/* out (hidden) = the square's features times the turned weights of its place, (features, hidden). */
static void work_out(const float *restrict square, const float *restrict turned, const Shape *s, float *restrict out) {
    int64_t h = 0;
    for (; h + WIDE * LANES <= s->hidden; h += WIDE * LANES) {
        Lane sums[WIDE] = {0};
        for (int64_t k = 0; k < s->features; k++)
            for (int j = 0; j < WIDE; j++)
                sums[j] += square[k] * fetch(turned + k * s->hidden + h + j * LANES);
        memcpy(out + h, sums, sizeof sums);
    }
    for (; h < s->hidden; h++) {
        out[h] = 0.0f;
        for (int64_t k = 0; k < s->features; k++)
            out[h] += square[k] * turned[k * s->hidden + h];
    }
}

/* to (features) += sums (hidden) times the weights of a place, whose rows of features lie `apart`. */
static void send_to_square(
    const float *restrict sums, const float *restrict weights, int64_t apart, const Shape *s, float *restrict to) {
    int64_t k = 0;
    for (; k + LANES <= s->features; k += LANES) {
        Lane ways[4] = {0}, whole = fetch(to + k);
        int64_t h = 0;
        for (; h + 4 <= s->hidden; h += 4)
            for (int way = 0; way < 4; way++)
                ways[way] += sums[h + way] * fetch(weights + (h + way) * apart + k);
        for (; h < s->hidden; h++)
            ways[0] += sums[h] * fetch(weights + h * apart + k);
        whole += (ways[0] + ways[1]) + (ways[2] + ways[3]);
        memcpy(to + k, &whole, sizeof whole);
    }
    for (; k < s->features; k++)
        for (int64_t h = 0; h < s->hidden; h++)
            to[k] += sums[h] * weights[h * apart + k];
}

/* to (hidden, features), rows `apart` = the sums (pairs, hidden) of a place times the features of their squares. */
static void send_to_weights(const float *restrict sums, const float *restrict squares, const int32_t *pairs,
                            int64_t count, int64_t apart, const Shape *s, float *restrict to) {
    int64_t k = 0;
    for (; k + LANES <= s->features; k += LANES) {
        int64_t h = 0;
        for (; h + WIDE <= s->hidden; h += WIDE) {
            Lane rows[WIDE] = {0};
            for (int64_t p = 0; p < count; p++) {
                Lane square = fetch(squares + pairs[p] * s->features + k);
                for (int j = 0; j < WIDE; j++)
                    rows[j] += sums[p * s->hidden + h + j] * square;
            }
            for (int j = 0; j < WIDE; j++)
                memcpy(to + (h + j) * apart + k, rows + j, sizeof rows[j]);
        }
        for (; h < s->hidden; h++) {
            Lane row = {0};
            for (int64_t p = 0; p < count; p++)
                row += sums[p * s->hidden + h] * fetch(squares + pairs[p] * s->features + k);
            memcpy(to + h * apart + k, &row, sizeof row);
        }
    }
    for (; k < s->features; k++)
        for (int64_t h = 0; h < s->hidden; h++) {
            float sum = 0.0f;
            for (int64_t p = 0; p < count; p++)
                sum += sums[p * s->hidden + h] * squares[pairs[p] * s->features + k];
            to[h * apart + k] = sum;
        }
}

/* out = the sum of these rows of a table, (.., hidden). */
static void add_up(const float *table, const int32_t *rows, int64_t count, int64_t hidden, float *out) {
    int64_t h = 0;
    for (; h + WIDE * LANES <= hidden; h += WIDE * LANES) {
        Lane sums[WIDE] = {0};
        for (int64_t i = 0; i < count; i++) {
            const float *row = table + rows[i] * hidden + h;
            for (int j = 0; j < WIDE; j++)
                sums[j] += fetch(row + j * LANES);
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
                for (int j = 0; j < WIDE; j++)
                    run[j] += fetch(slopes + i * hidden + h + j * LANES);
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
    const float *weights = part_of(layer, layer->weights, lane), *squares = part_of(layer, layer->squares, lane);
    float *out = part_of(layer, layer->out, lane);
    Pairs pairs;
    if (!find_pairs(s, part_of(layer, layer->places, lane), &pairs)) {
        atomic_store(&layer->failed, 1);
        return;
    }
    float *turned = malloc(sizeof(float) * (s->features * s->hidden + 1));
    float *sums = malloc(sizeof(float) * (pairs.starts[s->places] * s->hidden + 1));
    if (turned && sums) {
        for (int64_t place = 0; place < s->places; place++) {
            turn(weights + place * s->features, s->places * s->features, s, turned);
            for (int64_t p = pairs.starts[place]; p < pairs.starts[place + 1]; p++)
                work_out(squares + pairs.square[p] * s->features, turned, s, sums + p * s->hidden);
        }
        for (int64_t i = 0; i < s->pictures; i++)
            add_up(sums, pairs.of + i * s->places, s->places, s->hidden, out + i * s->hidden);
    } else
        atomic_store(&layer->failed, 1);
    free(turned);
    free(sums);
    forget(&pairs);
}

static void backwards(void *on, int64_t lane) {
    Layer *layer = on;
    const Shape *s = &layer->shape;
    const float *weights = part_of(layer, layer->weights, lane), *squares = part_of(layer, layer->squares, lane);
    const float *slopes = part_of(layer, layer->slopes, lane);
    float *to_weights = part_of(layer, layer->out, lane), *to_squares = part_of(layer, layer->to_squares, lane);
    memset(to_squares, 0, sizeof(float) * s->squares * s->features);
    Pairs pairs;
    if (!find_pairs(s, part_of(layer, layer->places, lane), &pairs)) {
        atomic_store(&layer->failed, 1);
        return;
    }
    int64_t most = s->pictures < s->squares ? s->pictures : s->squares, apart = s->places * s->features;
    float *sums = malloc(sizeof(float) * (most * s->hidden + 1)); /* of the pairs of one place */
    for (int64_t place = 0; sums && place < s->places; place++) {
        int64_t first = pairs.starts[place], count = pairs.starts[place + 1] - first;
        const float *here = weights + place * s->features;
        memset(sums, 0, sizeof(float) * count * s->hidden);
        gather(slopes, pairs.of + place, s->places, first, s->pictures, s->hidden, sums);
        send_to_weights(sums, squares, pairs.square + first, count, apart, s, to_weights + place * s->features);
        for (int64_t p = 0; p < count; p++)
            send_to_square(sums + p * s->hidden, here, apart, s, to_squares + pairs.square[first + p] * s->features);
    }
    if (!sums)
        atomic_store(&layer->failed, 1);
    free(sums);
    forget(&pairs);
}

/* Go through all lanes. */
static XLA_FFI_Error *run(const XLA_FFI_CallFrame *frame, Layer *layer, void (*act)(void *, int64_t)) {
    const int64_t *weights = layer->weights->dims + layer->weights->rank;
    const int64_t *squares = layer->squares->dims + layer->squares->rank;
    const int64_t *places = layer->places->dims + layer->places->rank;
    Shape shape = {places[-2], places[-1], squares[-2], squares[-1], weights[-2]};
    layer->shape = shape;
    int64_t lanes = 1;
    for (int64_t axis = 0; axis + 2 < layer->out->rank; axis++)
        lanes *= layer->out->dims[axis];
    share_out(frame, act, layer, lanes, lanes * shape.pictures * shape.places * shape.hidden);
    return atomic_load(&layer->failed) ? no_memory(frame) : 0;
}

/* (weights, squares, places) -> the layer without its bias. */
XLA_FFI_Error *picture_forwards(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return 0;
    if (frame->args.size != 3 || frame->rets.size != 1 || !all_are(frame, 0, 2, XLA_FFI_DataType_F32) ||
        !all_are(frame, 2, 1, XLA_FFI_DataType_S32))
        return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "picture_forwards: two of float32, one of int32");
    Layer layer = {.weights = given(frame, 0), .squares = given(frame, 1), .places = given(frame, 2),
                   .out = wanted(frame, 0)};
    return run(frame, &layer, forwards);
}

/* (slopes, weights, squares, places) -> the slopes of weights and squares. */
XLA_FFI_Error *picture_backwards(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return 0;
    if (frame->args.size != 4 || frame->rets.size != 2 || !all_are(frame, 0, 3, XLA_FFI_DataType_F32) ||
        !all_are(frame, 3, 1, XLA_FFI_DataType_S32))
        return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "picture_backwards: three of float32, one of int32");
    Layer layer = {.slopes = given(frame, 0), .weights = given(frame, 1), .squares = given(frame, 2),
                   .places = given(frame, 3), .out = wanted(frame, 0), .to_squares = wanted(frame, 1)};
    return run(frame, &layer, backwards);
}
