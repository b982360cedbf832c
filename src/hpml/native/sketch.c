/* Short images of long vectors, and the vectors themselves in one piece, from one reading of their leaves.
 *
 * `geometry/sketch.py` says what an image is: entry j of all leaves goes with a sign of its own to place j mod width, and
 * what meets there is added up, here in the order of j. A task is a stretch of places: it goes through all that falls
 * there, so that nobody else writes to them, and a result does not depend on the number of threads.
 */
#include "xla.h"

#define PLACES 2048 /* of an image, in one task: three stretches and their signs stay in the nearest cache */
#define TREES 8     /* at most, in one call */
#define LEAVES 3    /* arguments before the first leaf */

typedef struct {
    const XLA_FFI_CallFrame *frame;
    int64_t trees, leaves, kept, lanes, size, width, stretches;
    const int64_t *starts; /* (leaves + 1) where each leaf begins in the whole */
    const float *scales;   /* (trees) */
    uint32_t seed;
    float *images;       /* (lanes, trees, width) */
    const float *before; /* (lanes, size), or nothing */
    uint16_t *step;      /* (lanes, size), of 16 bits: the first tree minus what was before */
} Folds;

/* The sign bits of entries first, first + 1, ...: the top bit of a hash of their numbers (MurmurHash3's finaliser). */
static void signs_of(int64_t first, int64_t count, uint32_t seed, uint32_t *signs) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t h = ((uint32_t)first + (uint32_t)i) * 0x9E3779B1u + seed;
        h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
        h = (h ^ (h >> 13)) * 0xC2B2AE35u;
        signs[i] = h & 0x80000000u;
    }
}

static void add_signed(const float *from, float scale, const uint32_t *signs, int64_t count, float *into) {
    for (int64_t i = 0; i < count; i++) {
        float value = scale * from[i], turned;
        uint32_t bits;
        memcpy(&bits, &value, 4);
        bits ^= signs[i];
        memcpy(&turned, &bits, 4);
        into[i] += turned;
    }
}

/* Entries times a scale into a vector in one piece, from its entry `at` on; one of float32 or of 16 bits. */
static void copy_scaled(const float *from, float scale, int64_t count, const XLA_FFI_Buffer *whole, int64_t at) {
    if (whole->dtype == XLA_FFI_DataType_U16) {
        uint16_t *into = (uint16_t *)whole->data + at;
        for (int64_t i = 0; i < count; i++)
            into[i] = to_brief(scale * from[i]);
    } else {
        float *into = (float *)whole->data + at;
        for (int64_t i = 0; i < count; i++)
            into[i] = scale * from[i];
    }
}

static void step_between(const float *before, const float *from, float scale, int64_t count, uint16_t *into) {
    for (int64_t i = 0; i < count; i++)
        into[i] = to_brief(scale * from[i] - before[i]);
}

static void one_stretch(void *on, int64_t task) {
    const Folds *all = on;
    int64_t lane = task / all->stretches, place = task % all->stretches * PLACES;
    int64_t places = all->width - place < PLACES ? all->width - place : PLACES, leaf = 0;
    uint32_t signs[PLACES];
    float sums[TREES][PLACES];
    for (int64_t tree = 0; tree < all->trees; tree++)
        memset(sums[tree], 0, sizeof(float) * places);
    for (int64_t turn = place; turn < all->size; turn += all->width) {
        int64_t end = turn + places < all->size ? turn + places : all->size;
        signs_of(turn, end - turn, all->seed, signs);
        for (int64_t from = turn; from < end;) {
            while (all->starts[leaf + 1] <= from)
                leaf++;
            int64_t begin = all->starts[leaf], stop = all->starts[leaf + 1] < end ? all->starts[leaf + 1] : end;
            int64_t inside = lane * (all->starts[leaf + 1] - begin) + from - begin;
            for (int64_t tree = 0; tree < all->trees; tree++) {
                const float *values = (const float *)given(all->frame, LEAVES + tree * all->leaves + leaf)->data + inside;
                int64_t count = stop - from, at = lane * all->size + from;
                add_signed(values, all->scales[tree], signs + from - turn, count, sums[tree] + from - turn);
                if (tree < all->kept)
                    copy_scaled(values, all->scales[tree], count, wanted(all->frame, 1 + tree), at);
                if (tree == 0 && all->before)
                    step_between(all->before + at, values, all->scales[0], count, all->step + at);
            }
            from = stop;
        }
    }
    for (int64_t tree = 0; tree < all->trees; tree++)
        memcpy(all->images + (lane * all->trees + tree) * all->width + place, sums[tree], sizeof(float) * places);
}

/* (scales, seed, before, leaves of the first tree, of the second, ...) -> (images, the first in one piece, the second,
 * ..., step): see `sketch.py`. Without entries before there is no step. */
XLA_FFI_Error *signed_folds(XLA_FFI_CallFrame *frame) {
    if (is_question(frame))
        return 0;
    if (frame->args.size <= LEAVES || frame->rets.size < 1 || wanted(frame, 0)->rank < 2 ||
        given(frame, 0)->dtype != XLA_FFI_DataType_F32 || given(frame, 1)->dtype != XLA_FFI_DataType_U32 ||
        !all_are(frame, 2, frame->args.size - 2, XLA_FFI_DataType_F32))
        return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "signed_folds takes scales, a seed and float32 leaves");
    const XLA_FFI_Buffer *images = wanted(frame, 0), *before = given(frame, 2);
    int64_t trees = images->dims[images->rank - 2], leaves = (frame->args.size - LEAVES) / trees;
    int64_t steps = count_of(before) ? 1 : 0, last = frame->rets.size - 1;
    Folds all = {frame, trees, leaves, last - steps, 1, 0, images->dims[images->rank - 1], 0, 0, given(frame, 0)->data,
                 *(const uint32_t *)given(frame, 1)->data, images->data, 0, 0};
    for (int64_t axis = 0; axis + 2 < images->rank; axis++)
        all.lanes *= images->dims[axis];
    if (trees > TREES || trees * leaves != frame->args.size - LEAVES || all.kept < 0 || all.kept > trees)
        return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "signed_folds takes up to 8 trees of like leaves");
    if (steps) {
        if (wanted(frame, last)->dtype != XLA_FFI_DataType_U16)
            return refuse(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "signed_folds gives steps in uint16");
        all.before = before->data, all.step = wanted(frame, last)->data;
    }
    if (!all.lanes)
        return 0;
    int64_t *starts = malloc(sizeof(int64_t) * (leaves + 1));
    if (!starts)
        return no_memory(frame);
    starts[0] = 0;
    for (int64_t leaf = 0; leaf < leaves; leaf++)
        starts[leaf + 1] = starts[leaf] + count_of(given(frame, LEAVES + leaf)) / all.lanes;
    all.starts = starts, all.size = starts[leaves], all.stretches = (all.width + PLACES - 1) / PLACES;
    share_out(frame, one_stretch, &all, all.lanes * all.stretches, trees * all.lanes * all.size);
    free(starts);
    return 0;
}
