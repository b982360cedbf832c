/* What training on pictures asks of C: finding equal squares, and policies at play.
 *
 * A picture is made of squares, and the same squares come again and again. A `Book` knows every square that was seen and
 * gives it a number.
 *
 * A policy at play is the function of `player.py`, and of `networks.Actor`, for one environment at a time. A square in a
 * place adds the same numbers to an actor's first layer every time: they are worked out once a rollout and kept, so that
 * a step reads some kilobytes and not all of the layer's weights. What is kept never changes a result: a kept sum is
 * worked out by the same steps as a fresh one.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SQUARES 4096 /* different squares that a player knows; others are read anew every time */
#define SUMS 8192    /* places for kept sums of an actor, a power of two */
#define FULL 6144    /* of them in use, after which no more are kept */
#define LINE 24      /* bytes of a line of the usual square: 8 pixels of 3 colours */
#define LANES 8      /* numbers that are added side by side */
#define BLOCK 64     /* of a layer's numbers that stay in registers */

typedef float Lanes __attribute__((vector_size(4 * LANES)));

typedef struct {
    /* As Python writes them: every count, then whether one actor is everybody's. */
    int64_t agents, height, width, channels, side, sprites, vector, hidden, actions, memory, masked, shared;
} Shape;

typedef struct {
    /* An actor's parameters, agents first unless shared; in the order of `native.py`. Zero where there is none. */
    const float *vector, *vector_bias, *sprites, *sprites_bias, *picture, *picture_bias;
    const float *hidden, *hidden_bias, *head, *head_bias;
    const float *given, *kept, *memory_bias, *memory_bias_n;
} Weights;

typedef struct {
    /* One environment at one time: what is seen, known and drawn, and where the answer goes. */
    const uint8_t *image;
    const float *vector;
    const uint8_t *mask;
    const float *memory, *draws;
    int32_t *actions;
    float *logits, *then;
} Turn;

/* How pictures are cut into squares; a last one that is not whole is filled up with zeros. */
typedef struct {
    int64_t height, width, channels, side, rows, columns, cells, pixels;
} Grid;

typedef struct {
    int64_t count, most;
    uint64_t mask;   /* of the index, whose length is a power of two, at least twice `most` */
    uint8_t *pixels; /* (most, bytes of a square) */
    uint16_t *index; /* a square's number + 1, or 0 */
} Book;

typedef struct {
    int64_t count;
    uint32_t *keys;     /* (SUMS): the place and the square's number, + 1; or 0 */
    float *sums;        /* (SUMS, hidden) */
    uint8_t *is_read;   /* (SQUARES) */
    float *read;        /* (SQUARES, sprites) */
    uint8_t *is_turned; /* (places of a picture) */
    float *turned;      /* (places of a picture, sprites, hidden): the picture's weights, those of a place together */
    float *scale;       /* (sprites, bytes of a square): weights for bytes b, seen as b / 127.5 - 1 */
    float *offset;      /* (sprites) */
} Kept;

typedef struct {
    Shape shape;
    float forbidden;
    int64_t cells, actors;
    Grid grid;
    Weights weights;
    Book book;
    Kept *kept;
    int32_t *last; /* (agents, places): the square that was seen there last, or -1 */
    uint8_t *square;
    const float **sums;
    float *bytes, *spare, *features, *first, *second, *gates;
} Player;

static float dot(const float *a, const float *b, int64_t count) {
    Lanes one = {0}, two = {0}, left, right;
    int64_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        memcpy(&left, a + i, sizeof left);
        memcpy(&right, b + i, sizeof right);
        one += left * right;
        memcpy(&left, a + i + LANES, sizeof left);
        memcpy(&right, b + i + LANES, sizeof right);
        two += left * right;
    }
    one += two;
    float total = ((one[0] + one[4]) + (one[1] + one[5])) + ((one[2] + one[6]) + (one[3] + one[7]));
    for (; i < count; i++) total += a[i] * b[i];
    return total;
}

/* `result` = weights x + bias. */
static void dense(const float *weights, const float *bias, const float *x, int64_t in, int64_t out, float *result) {
    for (int64_t o = 0; o < out; o++) result[o] = dot(weights + o * in, x, in) + (bias ? bias[o] : 0);
}

static void rectify(float *x, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] = x[i] < 0 ? 0 : x[i]; /* what is not a number stays so */
}

static float sigmoid(float x) { return 0.5f + 0.5f * tanhf(0.5f * x); }

static Grid grid_of(const int64_t *picture) {
    Grid g = {picture[0], picture[1], picture[2], picture[3], 0, 0, 0, 0};
    g.rows = (g.height + g.side - 1) / g.side;
    g.columns = (g.width + g.side - 1) / g.side;
    g.cells = g.rows * g.columns;
    g.pixels = g.side * g.side * g.channels;
    return g;
}

/* Where a square of a picture begins, and how many lines and bytes of it the picture has. */
typedef struct {
    const uint8_t *from;
    int64_t lines, wide;
} Corner;

static Corner corner(const Grid *g, const uint8_t *image, int64_t cell) {
    int64_t top = cell / g->columns * g->side, left = cell % g->columns * g->side;
    int64_t lines = g->height - top < g->side ? g->height - top : g->side;
    int64_t wide = (g->width - left < g->side ? g->width - left : g->side) * g->channels;
    return (Corner){image + (top * g->width + left) * g->channels, lines, wide};
}

/* A square's lines one after the other. */
static void cut(const Grid *g, Corner at, uint8_t *square) {
    int64_t line = g->side * g->channels, across = g->width * g->channels;
    if (at.lines * at.wide < g->pixels) memset(square, 0, g->pixels);
    for (int64_t y = 0; y < at.lines; y++)
        if (at.wide == LINE) memcpy(square + y * line, at.from + y * across, LINE);
        else memcpy(square + y * line, at.from + y * across, at.wide);
}

/* Whether a square of a picture is known to be this one: the usual square, whole, compared without cutting it. */
static int is_square(const Grid *g, Corner at, const uint8_t *known) {
    int64_t across = g->width * g->channels;
    if (at.wide != LINE || at.lines * at.wide < g->pixels) return 0;
    uint64_t differ = 0, one[LINE / 8], other[LINE / 8];
    for (int64_t y = 0; y < at.lines; y++) {
        memcpy(one, known + LINE * y, LINE);
        memcpy(other, at.from + across * y, LINE);
        differ |= (one[0] ^ other[0]) | (one[1] ^ other[1]) | (one[2] ^ other[2]);
    }
    return !differ;
}

static uint64_t hash(const uint8_t *bytes, int64_t count) {
    uint64_t lanes[4] = {1, 2, 3, 4}, word;
    int64_t i = 0;
    for (; i + 32 <= count; i += 32)
        for (int k = 0; k < 4; k++) {
            memcpy(&word, bytes + i + 8 * k, 8);
            lanes[k] = (lanes[k] ^ word) * 0x9E3779B97F4A7C15u;
            lanes[k] ^= lanes[k] >> 29;
        }
    for (; i < count; i++) lanes[i & 3] = (lanes[i & 3] ^ bytes[i]) * 0x9E3779B97F4A7C15u;
    uint64_t all = lanes[0];
    for (int k = 1; k < 4; k++) all = ((all ^ all >> 31) * 0xBF58476D1CE4E5B9u) ^ lanes[k];
    all *= 0x94D049BB133111EBu;
    return all ^ all >> 32;
}

/* The number of a square, a new one if it was never seen; -1 where the book is full. */
static int32_t look_up(Book *book, const uint8_t *square, int64_t pixels) {
    uint64_t at = hash(square, pixels) & book->mask;
    for (; book->index[at]; at = (at + 1) & book->mask)
        if (!memcmp(book->pixels + (book->index[at] - 1) * pixels, square, pixels)) return book->index[at] - 1;
    if (book->count == book->most) return -1;
    memcpy(book->pixels + book->count * pixels, square, pixels);
    book->index[at] = ++book->count;
    return book->count - 1;
}

/* The number of a square of a picture; `guess` is one that it may have, or -1. `square` is where it is cut out to. */
static int32_t number_of(Book *book, const Grid *g, Corner at, int32_t guess, uint8_t *square) {
    if (guess >= 0 && is_square(g, at, book->pixels + guess * g->pixels)) return guess;
    cut(g, at, square);
    return look_up(book, square, g->pixels);
}

/* Each square's number in a book of different ones, and how many there are; -1 where they are more than `most`.
 *
 * `picture` is (height, width, channels, side). `places` is (pictures, squares), `pixels` (most, bytes of a square),
 * `index` zeros, as many as a power of two of at least twice `most`, which is below 65,536; `square` is room for one
 * square. A picture is likely to look like the one `apart` before it.
 */
int64_t index_squares(const int64_t *picture, const uint8_t *images, int64_t pictures, int64_t apart, int32_t *places,
                      uint8_t *pixels, int64_t most, uint16_t *index, int64_t length, uint8_t *square) {
    Grid g = grid_of(picture);
    Book book = {0, most, length - 1, pixels, index};
    for (int64_t i = 0; i < pictures; i++, images += g.height * g.width * g.channels)
        for (int64_t cell = 0; cell < g.cells; cell++) {
            int32_t guess = i < apart ? -1 : places[(i - apart) * g.cells + cell];
            int32_t number = number_of(&book, &g, corner(&g, images, cell), guess, square);
            if (number < 0) return -1;
            places[i * g.cells + cell] = number;
        }
    return book.count;
}

/* What an actor makes of a square. */
static void read_square(const Player *player, const Kept *kept, const uint8_t *square, float *features) {
    for (int64_t i = 0; i < player->grid.pixels; i++) player->bytes[i] = square[i];
    dense(kept->scale, kept->offset, player->bytes, player->grid.pixels, player->shape.sprites, features);
    rectify(features, player->shape.sprites);
}

static const float *features_of(const Player *player, Kept *kept, int64_t number) {
    if (number < 0) {
        read_square(player, kept, player->square, player->features);
        return player->features;
    }
    float *features = kept->read + number * player->shape.sprites;
    if (!kept->is_read[number]) {
        read_square(player, kept, player->book.pixels + number * player->grid.pixels, features);
        kept->is_read[number] = 1;
    }
    return features;
}

/* The weights of a place, (sprites, hidden). They lie far apart in the layer, and are fetched once a rollout. */
static const float *weights_of(const Player *player, Kept *kept, const float *picture, int64_t cell) {
    int64_t hidden = player->shape.hidden, sprites = player->shape.sprites;
    float *turned = kept->turned + cell * sprites * hidden;
    if (!kept->is_turned[cell]) {
        const float *from = picture + cell * sprites;
        for (int64_t o = 0; o < hidden; o++, from += player->cells * sprites)
            for (int64_t k = 0; k < sprites; k++) turned[k * hidden + o] = from[k];
        kept->is_turned[cell] = 1;
    }
    return turned;
}

/* What a square in a place adds to the actor's first layer; `spare` is for what is not kept. */
static const float *sum_of(const Player *player, Kept *kept, const float *picture, int64_t cell, int64_t number,
                           float *spare) {
    int64_t hidden = player->shape.hidden, sprites = player->shape.sprites;
    float *sum = spare;
    if (number >= 0) {
        uint32_t key = (uint32_t)(number * player->cells + cell) + 1;
        uint32_t at = (key * 0x9E3779B1u) >> 7 & (SUMS - 1);
        for (; kept->keys[at]; at = (at + 1) & (SUMS - 1))
            if (kept->keys[at] == key) {
                sum = kept->sums + at * hidden;
                for (int64_t o = 0; o < hidden; o += 64 / sizeof(float)) __builtin_prefetch(sum + o);
                return sum;
            }
        if (kept->count < FULL) {
            kept->count++;
            kept->keys[at] = key;
            sum = kept->sums + at * hidden;
        }
    }
    const float *features = features_of(player, kept, number), *weights = weights_of(player, kept, picture, cell);
    memset(sum, 0, hidden * sizeof(float));
    for (int64_t k = 0; k < sprites; k++, weights += hidden) {
        float x = features[k];
        if (x == 0) continue; /* half of them */
        for (int64_t o = 0; o < hidden; o++) sum[o] += x * weights[o];
    }
    return sum;
}

/* The first layer before its non-linearity. */
static void see(Player *player, const Turn *turn, int64_t agent, float *x) {
    const Shape *s = &player->shape;
    const Weights *w = &player->weights;
    int64_t actor = s->shared ? 0 : agent, inputs = s->vector + (s->shared ? s->agents : 0), hidden = s->hidden;
    const float *picture = w->picture + actor * hidden * player->cells * s->sprites;
    for (int64_t cell = 0; cell < player->cells; cell++) {
        Corner at = corner(&player->grid, turn->image + agent * s->height * s->width * s->channels, cell);
        int32_t *number = player->last + agent * player->cells + cell;
        *number = number_of(&player->book, &player->grid, at, *number, player->square);
        player->sums[cell] =
            sum_of(player, player->kept + actor, picture, cell, *number, player->spare + cell * hidden);
    }
    const float *vector = w->vector + actor * hidden * inputs, *numbers = turn->vector + agent * s->vector;
    for (int64_t o = 0; o < hidden; o++) {
        x[o] = dot(vector + o * inputs, numbers, s->vector) + w->vector_bias[actor * hidden + o];
        if (s->shared) x[o] += vector[o * inputs + s->vector + agent];
        if (player->cells) x[o] += w->picture_bias[actor * hidden + o];
    }
    int64_t o = 0;
    for (; o + BLOCK <= hidden; o += BLOCK) {
        float block[BLOCK];
        memcpy(block, x + o, sizeof block);
        for (int64_t cell = 0; cell < player->cells; cell++)
            for (int64_t i = 0; i < BLOCK; i++) block[i] += player->sums[cell][o + i];
        memcpy(x + o, block, sizeof block);
    }
    for (int64_t cell = 0; cell < player->cells; cell++)
        for (int64_t i = o; i < hidden; i++) x[i] += player->sums[cell][i];
}

/* A step of the gated unit, as equinox has it. */
static void remember(Player *player, const Turn *turn, int64_t agent, const float *x, float *then) {
    const Weights *w = &player->weights;
    int64_t actor = player->shape.shared ? 0 : agent, units = player->shape.memory, in = player->shape.hidden;
    float *given = player->gates, *held = player->gates + 3 * units;
    const float *known = turn->memory + agent * units, *bias_n = w->memory_bias_n + actor * units;
    dense(w->given + actor * 3 * units * in, w->memory_bias + actor * 3 * units, x, in, 3 * units, given);
    dense(w->kept + actor * 3 * units * units, NULL, known, units, 3 * units, held);
    for (int64_t i = 0; i < units; i++) {
        float reset = sigmoid(given[i] + held[i]), hold = sigmoid(given[units + i] + held[units + i]);
        float fresh = tanhf(given[2 * units + i] + reset * (held[2 * units + i] + bias_n[i]));
        then[i] = fresh + hold * (known[i] - fresh);
    }
}

/* The action that a number on [0, 1) draws from logits. */
static int32_t draw(const float *logits, int64_t actions, float number) {
    float most = logits[0], total = 0, part = 0;
    int32_t action = 0;
    for (int64_t i = 1; i < actions; i++) most = logits[i] > most ? logits[i] : most;
    for (int64_t i = 0; i < actions; i++) total += expf(logits[i] - most);
    for (int64_t i = 0; i < actions; i++) {
        part += expf(logits[i] - most);
        action += part <= number * total;
    }
    return action;
}

/* Everybody's action at one time. */
void act(Player *player, const Turn *turn) {
    const Shape *s = &player->shape;
    const Weights *w = &player->weights;
    for (int64_t agent = 0; agent < s->agents; agent++) {
        int64_t actor = s->shared ? 0 : agent, hidden = s->hidden, last = s->memory ? s->memory : hidden;
        float *first = player->first, *second = player->second, *logits = turn->logits + agent * s->actions;
        see(player, turn, agent, first);
        rectify(first, hidden);
        dense(w->hidden + actor * hidden * hidden, w->hidden_bias + actor * hidden, first, hidden, hidden, second);
        rectify(second, hidden);
        const float *known = second;
        if (s->memory) {
            remember(player, turn, agent, second, turn->then + agent * s->memory);
            known = turn->then + agent * s->memory;
        }
        dense(w->head + actor * s->actions * last, w->head_bias + actor * s->actions, known, last, s->actions, logits);
        if (s->masked)
            for (int64_t i = 0; i < s->actions; i++)
                if (!turn->mask[agent * s->actions + i]) logits[i] = player->forbidden;
        turn->actions[agent] = draw(logits, s->actions, turn->draws[agent]);
    }
}

/* Play by these parameters from now on: what was kept of others is forgotten. */
void load(Player *player, const Weights *weights) {
    player->weights = *weights;
    if (!player->cells) return;
    int64_t sprites = player->shape.sprites, pixels = player->grid.pixels;
    for (int64_t actor = 0; actor < player->actors; actor++) {
        Kept *kept = player->kept + actor;
        kept->count = 0;
        memset(kept->keys, 0, SUMS * sizeof *kept->keys);
        memset(kept->is_read, 0, SQUARES);
        memset(kept->is_turned, 0, player->cells);
        for (int64_t o = 0; o < sprites; o++) {
            const float *read = weights->sprites + (actor * sprites + o) * pixels;
            float total = 0;
            for (int64_t i = 0; i < pixels; i++) {
                kept->scale[o * pixels + i] = read[i] / 127.5f;
                total += read[i];
            }
            kept->offset[o] = weights->sprites_bias[actor * sprites + o] - total;
        }
    }
}

static void *room(int64_t count, int64_t size, int *enough) {
    void *memory = calloc(count > 0 ? count : 1, size);
    *enough &= memory != NULL;
    return memory;
}

/* Somebody to play in environments of this shape, or NULL where memory is short. */
Player *open_player(const Shape *shape, float forbidden) {
    Player *player = calloc(1, sizeof *player);
    if (!player) return NULL;
    int enough = 1;
    const Shape *s = shape;
    player->shape = *s;
    player->forbidden = forbidden;
    player->actors = s->shared ? 1 : s->agents;
    player->first = room(s->hidden, sizeof(float), &enough);
    player->second = room(s->hidden, sizeof(float), &enough);
    player->gates = room(6 * s->memory, sizeof(float), &enough);
    if (!s->side) return enough ? player : NULL;
    player->grid = grid_of(&s->height);
    player->cells = player->grid.cells;
    player->square = room(player->grid.pixels, 1, &enough);
    player->bytes = room(player->grid.pixels, sizeof(float), &enough);
    player->features = room(s->sprites, sizeof(float), &enough);
    player->last = room(s->agents * player->cells, sizeof(int32_t), &enough);
    if (enough) memset(player->last, -1, s->agents * player->cells * sizeof(int32_t));
    player->sums = room(player->cells, sizeof(float *), &enough);
    player->spare = room(player->cells * s->hidden, sizeof(float), &enough);
    player->book = (Book){0, SQUARES, 4 * SQUARES - 1, NULL, NULL};
    player->book.pixels = room(SQUARES * player->grid.pixels, 1, &enough);
    player->book.index = room(4 * SQUARES, sizeof(uint16_t), &enough);
    player->kept = room(player->actors, sizeof(Kept), &enough);
    for (int64_t actor = 0; enough && actor < player->actors; actor++) {
        Kept *kept = player->kept + actor;
        kept->keys = room(SUMS, sizeof(uint32_t), &enough);
        kept->sums = room(SUMS * s->hidden, sizeof(float), &enough);
        kept->is_read = room(SQUARES, 1, &enough);
        kept->is_turned = room(player->cells, 1, &enough);
        kept->turned = room(player->cells * s->sprites * s->hidden, sizeof(float), &enough);
        kept->read = room(SQUARES * s->sprites, sizeof(float), &enough);
        kept->scale = room(s->sprites * player->grid.pixels, sizeof(float), &enough);
        kept->offset = room(s->sprites, sizeof(float), &enough);
    }
    return enough ? player : NULL;
}
