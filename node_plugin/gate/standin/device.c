/* The properties of devices. */
#include "standin.h"

#include <stdio.h>
#include <string.h>

API CUresult cuDriverGetVersion(int *answer) {
    if (!answer) return INVALID_VALUE;
    *answer = standin_version;
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
    ENTER(FAILS);
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
    *value = attribute == 33 ? standin_devices[device].bus : attribute < most ? attributes[attribute] : 0;
    return OK;
}

API CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
    ENTER(WAITS);
    CUresult failed = known_device(device);
    if (!failed) snprintf(text, (size_t)length, "0000:%02X:00.0", (unsigned)standin_devices[device].bus);
    return failed;
}

API CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
    unsigned domain, bus;
    if (standin_state) return standin_state;
    if (sscanf(text, "%x:%x", &domain, &bus) != 2) return INVALID_VALUE;
    for (*device = 0; *device < standin_count; ++*device)
        if (standin_devices[*device].bus == (int)bus) return OK;
    return INVALID_DEVICE;
}

API CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice other) {
    *can = 0;
    return known_device(device) ? known_device(device) : known_device(other);
}
