/* Settings from the environment, cuInit, and the properties of devices. */
#define _GNU_SOURCE
#include "standin.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "JUPYTER_GPU_STANDIN"
#define DEFAULT_GPUS "GPU-00000000-0000-4000-8000-000000000000:16384"

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
struct device standin_devices[MAX_DEVICES];
int standin_count;
int standin_state = NOT_INITIALIZED;
uint64_t standin_default_us = 10;
uint64_t standin_copy_rate = 25000;
uint64_t standin_context;

static int version = 13000;

static CUresult wrong(const char *what, const char *value, const char *why) {
    fprintf(stderr, "stand-in GPU: %s%s is %s: %s\n", VARIABLE, what, value, why);
    return UNKNOWN;
}

static CUresult number(const char *what, uint64_t most, uint64_t *number) {
    char name[64], *end;
    snprintf(name, sizeof name, "%s%s", VARIABLE, what);
    const char *value = getenv(name);
    if (!value || !*value) return OK;
    errno = 0;
    unsigned long long read = strtoull(value, &end, 10);
    if (!isdigit((unsigned char)*value) || *end || errno || read > most) return wrong(what, value, "not such a number");
    *number = read;
    return OK;
}

/* Parse "GPU-" and a UUID into 16 bytes. */
static int read_uuid(const char *text, char uuid[16]) {
    int digits = 0;
    if (strncmp(text, "GPU-", 4)) return 0;
    for (const char *c = text + 4; *c; c++) {
        if (*c == '-') continue;
        if (!isxdigit((unsigned char)*c) || digits == 32) return 0;
        int digit = isdigit((unsigned char)*c) ? *c - '0' : tolower((unsigned char)*c) - 'a' + 10;
        uuid[digits / 2] = (char)(digits % 2 ? (uuid[digits / 2] & 0xf0) | digit : digit << 4);
        digits++;
    }
    return digits == 32;
}

struct setting {
    char name[48], uuid[16];
    uint64_t megabytes;
};

/* Parse a list of UUID:MiB; return how many, or -1. */
static int read_gpus(const char *value, struct setting gpus[MAX_DEVICES]) {
    char list[2048], *rest = list, *part, *end = "";
    int count = 0;
    snprintf(list, sizeof list, "%s", value);
    for (; *value && (part = strsep(&rest, ",")); count++) {
        if (count == MAX_DEVICES) return -1;
        struct setting *gpu = &gpus[count];
        char *size = strchr(part, ':');
        gpu->megabytes = 16384;
        if (size) {
            *size++ = 0;
            gpu->megabytes = strtoull(size, &end, 10);
        }
        if (!read_uuid(part, gpu->uuid) || !gpu->megabytes || *end) return -1;
        snprintf(gpu->name, sizeof gpu->name, "%s", part);
    }
    return count;
}

/* Return the GPU that an entry of CUDA_VISIBLE_DEVICES means, an index or the beginning of a UUID; or -1. */
static int named(const char *entry, const struct setting *gpus, int count) {
    char *end;
    long index = strtol(entry, &end, 10);
    if (end != entry && !*end) return index >= 0 && index < count ? (int)index : -1;
    for (int i = 0; i < count; i++)
        if (strlen(entry) > 4 && !strncmp(entry, gpus[i].name, strlen(entry))) return i;
    return -1;
}

static CUresult open_device(const char *folder, uint64_t entries, const struct setting *gpu) {
    struct device *device = &standin_devices[standin_count];
    int failed = board_open(&device->board, folder, gpu->name, gpu->megabytes << 20, (uint32_t)entries,
                            getenv(VARIABLE "_OWNER"));
    if (failed) return wrong("", folder, strerror(failed));
    device->memory = device->board.sheet->memory;
    device->pool = device->default_pool = make_pool(standin_count);
    memcpy(device->uuid, gpu->uuid, sizeof device->uuid);
    standin_count++;
    return OK;
}

/* Open all devices, or those of CUDA_VISIBLE_DEVICES up to the first that does not exist. */
static CUresult open_devices(const char *folder, uint64_t entries) {
    struct setting gpus[MAX_DEVICES] = {0};
    const char *value = getenv(VARIABLE "_GPUS"), *visible = getenv("CUDA_VISIBLE_DEVICES");
    int count = read_gpus(value ? value : DEFAULT_GPUS, gpus);
    if (count < 0) return wrong("_GPUS", value, "not a list of up to 16 GPU-UUID:MiB");
    CUresult failed = OK;
    for (int i = 0; !visible && !failed && i < count; i++) failed = open_device(folder, entries, &gpus[i]);
    char list[2048], *rest = list, *part;
    snprintf(list, sizeof list, "%s", visible ? visible : "");
    while (visible && !failed && standin_count < MAX_DEVICES && (part = strsep(&rest, ","))) {
        int index = named(part, gpus, count);
        if (index < 0) break;
        failed = open_device(folder, entries, &gpus[index]);
    }
    return failed ? failed : standin_count ? OK : NO_DEVICE;
}

/* As with a real driver, a forked child cannot use the driver that its parent has initialized. */
static void in_child(void) {
    standin_state = NOT_INITIALIZED;
    standin_count = -1;
}

static CUresult start(void) {
    char folder[2048];
    uint64_t entries = 65536, asked = (uint64_t)version;
    const char *value = getenv(VARIABLE);
    if (value && *value) snprintf(folder, sizeof folder, "%s", value);
    else snprintf(folder, sizeof folder, "/dev/shm/jupyter-gpu-standin-%d", (int)getuid());
    CUresult failed = number("_LOG", UINT64_C(1) << 26, &entries);
    if (!failed) failed = number("_US", UINT64_C(1) << 32, &standin_default_us);
    if (!failed) failed = number("_COPY", UINT64_C(1) << 32, &standin_copy_rate);
    if (!standin_copy_rate) standin_copy_rate = 1;
    if (!failed) failed = number("_CONTEXT", 65536, &standin_context);
    standin_context <<= 20;
    if (!failed) failed = number("_VERSION", 99999, &asked);
    version = (int)asked;
    if (!failed) failed = open_devices(folder, entries ? entries : 1);
    if (!failed) pthread_atfork(NULL, NULL, in_child);
    return failed;
}

API CUresult cuInit(unsigned flags) {
    if (flags) return INVALID_VALUE;
    pthread_mutex_lock(&standin_lock);
    int again = standin_state == NOT_INITIALIZED || standin_state == NO_DEVICE; /* a real driver looks again */
    if (again && standin_count == 0) standin_state = start();
    CUresult state = standin_state;
    pthread_mutex_unlock(&standin_lock);
    return state;
}

API CUresult cuDriverGetVersion(int *answer) {
    if (!answer) return INVALID_VALUE;
    *answer = version;
    return OK;
}

CUresult known_device(CUdevice device) {
    if (standin_state) return standin_state;
    return device < 0 || device >= standin_count ? INVALID_DEVICE : OK;
}

API CUresult cuDeviceGetCount(int *count) {
    if (standin_state) return standin_state;
    if (!count) return INVALID_VALUE;
    *count = standin_count;
    return OK;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    CUresult failed = known_device(ordinal);
    if (!failed) *device = ordinal;
    return failed;
}

API CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    CUresult failed = known_device(device);
    if (!failed) snprintf(name, (size_t)length, "Stand-in GPU");
    return failed;
}

API CUresult cuDeviceGetUuid(char uuid[16], CUdevice device) {
    CUresult failed = known_device(device);
    if (!failed) memcpy(uuid, standin_devices[device].uuid, 16);
    return failed;
}

API CUresult cuDeviceGetUuid_v2(char uuid[16], CUdevice device) { return cuDeviceGetUuid(uuid, device); }

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    CUresult failed = known_device(device);
    if (!failed) *bytes = standin_devices[device].memory;
    return failed;
}

API CUresult cuDeviceTotalMem(unsigned *bytes, CUdevice device) {
    size_t all;
    CUresult failed = cuDeviceTotalMem_v2(&all, device);
    if (!failed) *bytes = all > UINT32_MAX ? UINT32_MAX : (unsigned)all;
    return failed;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device) {
    *major = 8, *minor = 0;
    return known_device(device);
}

/* By attribute; the others are 0. */
static const int attributes[] = {
    [1] = 1024,      [2] = 1024,      [3] = 1024,  [4] = 64,      [5] = 0x7fffffff, [6] = 65535,   [7] = 65535,
    [8] = 49152,     [9] = 65536,     [10] = 32,   [11] = 0x7fffffff, [12] = 65536, [13] = 1410000, [14] = 512,
    [15] = 1,        [16] = 108,      [19] = 1,    [21] = 131072, [22] = 131072,    [23] = 65536,  [24] = 16384,
    [25] = 16384,    [26] = 16384,    [30] = 512,  [31] = 1,      [36] = 1593000,   [37] = 5120,   [38] = 41943040,
    [39] = 2048,     [40] = 2,        [41] = 1,    [51] = 32,     [75] = 8,         [76] = 0,      [78] = 1,
    [79] = 1,        [80] = 1,        [81] = 167936, [82] = 65536, [83] = 1,        [89] = 1,      [90] = 1,
    [92] = 1,        [93] = 1,        [94] = 1,    [95] = 1,
    [97] = 166912,   [99] = 1,        [102] = 1,   [103] = 1,     [106] = 32,       [111] = 1024,  [115] = 1,
    [119] = 1,       [121] = 0,       [122] = 1,   [123] = 1,     [127] = 0,
    [136] = DECOMPRESSES, [137] = MOST_DECOMPRESSED, [160] = 0,
};

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    CUresult failed = known_device(device);
    if (failed) return failed;
    if (!value || attribute < 1) return INVALID_VALUE;
    int most = (int)(sizeof attributes / sizeof *attributes);
    *value = attribute == 33 ? device + 1 : attribute < most ? attributes[attribute] : 0;
    return OK;
}

API CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    CUresult failed = known_device(device);
    if (!failed) snprintf(text, (size_t)length, "0000:%02X:00.0", (unsigned)device + 1);
    return failed;
}

API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
    unsigned domain, bus;
    if (standin_state) return standin_state;
    if (sscanf(text, "%x:%x", &domain, &bus) != 2 || !bus) return INVALID_VALUE;
    return cuDeviceGet(device, (int)bus - 1);
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other) {
    *can = 0;
    return known_device(device) ? known_device(device) : known_device(other);
}
