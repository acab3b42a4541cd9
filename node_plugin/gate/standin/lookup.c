/* cuGetProcAddress in both versions, and the names of errors. */
#include <stdio.h>
#include <string.h>

#include "names.h"
#include "standin.h"

enum { FOUND = 0, NO_SUCH_SYMBOL = 1, VERSION_TOO_OLD = 2 };

static int per_thread(const struct row *row) {
    size_t length = strlen(row->suffix);
    return length >= 5 && (!strcmp(row->suffix + length - 5, "_ptsz") || !strcmp(row->suffix + length - 5, "_ptds"));
}

static int better(const struct row *row, const struct row *best) {
    int a = per_thread(row), b = best ? per_thread(best) : -1;
    return a != b ? a > b : row->since >= best->since;
}

/* Return the newest form of a name up to a version; flag 2 prefers the forms for per-thread default streams. */
static int find(const char *name, int version, unsigned long long flags, void **function) {
    const struct row *best = NULL;
    int known = 0;
    for (int i = 0; i < standin_row_count; i++) {
        const struct row *row = &standin_rows[i];
        if (strcmp(row->base, name)) continue;
        known = 1;
        if (row->since <= version && (!per_thread(row) || flags & 2) && better(row, best)) best = row;
    }
    *function = best ? (void *)best->function : NULL;
    return best ? FOUND : known ? VERSION_TOO_OLD : NO_SUCH_SYMBOL;
}

API CUresult cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *result) {
    if (!name || !function) return INVALID_VALUE;
    int found = find(name, version, flags, function);
    if (result) *result = found;
    return found == FOUND || result ? OK : NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult error(CUresult code, const char **name, const char **text) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].code != code) continue;
        if (name) *name = errors[i].name;
        if (text) *text = errors[i].text;
        return OK;
    }
    if (name) *name = NULL;
    if (text) *text = NULL;
    return INVALID_VALUE;
}

API CUresult cuGetErrorName(CUresult code, const char **name) { return error(code, name, NULL); }

API CUresult cuGetErrorString(CUresult code, const char **text) { return error(code, NULL, text); }

API CUresult cuProfilerStart(void) { return standin_state; }

API CUresult cuProfilerStop(void) { return standin_state; }
