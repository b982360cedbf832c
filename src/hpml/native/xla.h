/* What functions need that XLA's programs for the CPU call, by XLA's foreign function interface. */
#ifndef HPML_XLA_H
#define HPML_XLA_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

#define ALONE (1 << 17) /* numbers to go through that are not worth waking another thread for */

/* ---- Work that is shared by threads ---- */

typedef struct {
    void (*act)(void *on, int64_t task);
    void *on;
    int64_t tasks;
    atomic_llong next, done;
    atomic_int holders; /* who may still look at this; the last one to leave frees it */
} Job;

static void help(Job *job) {
    for (int64_t task; (task = atomic_fetch_add(&job->next, 1)) < job->tasks; atomic_fetch_add(&job->done, 1))
        job->act(job->on, task);
}

static void leave(Job *job) {
    if (atomic_fetch_sub(&job->holders, 1) == 1)
        free(job);
}

static void helper(void *job) {
    help(job);
    leave(job);
}

static void drop(const XLA_FFI_CallFrame *frame, XLA_FFI_Error *error) {
    if (error) {
        XLA_FFI_Error_Destroy_Args gone = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, 0, error};
        frame->api->XLA_FFI_Error_Destroy(&gone);
    }
}

/* How many threads XLA has; one where there are none to be had. */
static int64_t threads_of(const XLA_FFI_CallFrame *frame) {
    int64_t threads = 1;
    XLA_FFI_ThreadPool_NumThreads_Args count = {XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE, 0, frame->ctx, &threads};
    XLA_FFI_Error *error = frame->api->XLA_FFI_ThreadPool_NumThreads(&count);
    int64_t known = error || threads < 1 ? 1 : threads;
    drop(frame, error);
    return known;
}

/* Ask XLA's threads for help. Who comes late finds nothing left to do; nobody waits for who has not begun. */
static void call_helpers(const XLA_FFI_CallFrame *frame, Job *job) {
    XLA_FFI_Error *error = 0;
    int64_t threads = threads_of(frame);
    for (int64_t i = 1; !error && i < threads && i < job->tasks; i++) {
        atomic_fetch_add(&job->holders, 1);
        XLA_FFI_ThreadPool_Schedule_Args one = {
            XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE, 0, frame->ctx, helper, job};
        error = frame->api->XLA_FFI_ThreadPool_Schedule(&one);
        if (error)
            leave(job);
    }
    drop(frame, error); /* no threads to be had: one is enough */
}

/* Do all tasks, alone or, where there are many `entries`, with others. */
static void share_out(
    const XLA_FFI_CallFrame *frame, void (*act)(void *, int64_t), void *on, int64_t tasks, int64_t entries) {
    Job *job = entries > ALONE ? calloc(1, sizeof *job) : 0;
    if (!job) {
        for (int64_t task = 0; task < tasks; task++)
            act(on, task);
        return;
    }
    job->act = act, job->on = on, job->tasks = tasks;
    atomic_init(&job->holders, 1);
    call_helpers(frame, job);
    help(job);
    while (atomic_load(&job->done) < tasks)
        sched_yield(); /* somebody is in the middle of a task */
    leave(job);
}

/* ---- Numbers of 16 bits: the upper half of a float32 (bfloat16) ---- */

static inline __attribute__((always_inline)) float from_brief(uint16_t brief) {
    uint32_t bits = (uint32_t)brief << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* The nearest one, of two the even one. What is not a number stays none. */
static inline __attribute__((always_inline)) uint16_t to_brief(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t nearest = (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
    return (bits & 0x7FFFFFFFu) > 0x7F800000u ? (uint16_t)(bits >> 16 | 0x40u) : nearest;
}

/* ---- What XLA hands over ---- */

static XLA_FFI_Error *refuse(const XLA_FFI_CallFrame *frame, XLA_FFI_Error_Code code, const char *why) {
    XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, 0, why, code};
    return frame->api->XLA_FFI_Error_Create(&args);
}

static XLA_FFI_Error *no_memory(const XLA_FFI_CallFrame *frame) {
    return refuse(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "out of memory");
}

/* Whether this is no call: XLA asks first which version of its interface a function was written for. */
static int is_question(XLA_FFI_CallFrame *frame) {
    if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata)
        return 0;
    XLA_FFI_Metadata *about = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
    about->api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    about->api_version.extension_start = 0;
    about->api_version.major_version = XLA_FFI_API_MAJOR;
    about->api_version.minor_version = XLA_FFI_API_MINOR;
    about->traits = 0;
    about->state_type_id.type_id = 0;
    return 1;
}

static const XLA_FFI_Buffer *given(const XLA_FFI_CallFrame *frame, int64_t i) { return frame->args.args[i]; }

static XLA_FFI_Buffer *wanted(const XLA_FFI_CallFrame *frame, int64_t i) { return frame->rets.rets[i]; }

static inline int64_t count_of(const XLA_FFI_Buffer *buffer) {
    int64_t count = 1;
    for (int64_t i = 0; i < buffer->rank; i++)
        count *= buffer->dims[i];
    return count;
}

/* Whether so many of the arrays, from the first on, have this dtype. */
static inline int all_are(const XLA_FFI_CallFrame *frame, int64_t first, int64_t count, XLA_FFI_DataType dtype) {
    for (int64_t i = first; i < first + count; i++)
        if (given(frame, i)->dtype != dtype)
            return 0;
    return 1;
}

#endif
