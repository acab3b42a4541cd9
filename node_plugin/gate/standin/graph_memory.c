/* Memory of graphs: taken by a launch that needs more than is reserved, and kept until it is trimmed. */
#include "standin.h"

enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };

CUresult graph_memory(struct device *device, uint64_t peak, int64_t left) {
    pthread_mutex_lock(&standin_lock);
    uint64_t need = device->graph_used + peak, all = device->graph_reserved, more = need > all ? need - all : 0;
    int enough = board_take(&device->board, (int64_t)more);
    if (enough) {
        device->graph_reserved += more;
        device->graph_used += (uint64_t)left;
    }
    pthread_mutex_unlock(&standin_lock);
    return enough ? OK : OUT_OF_MEMORY;
}

API CUresult cuDeviceGraphMemTrim(CUdevice number) {
    CUresult failed = known_device(number);
    if (failed) return failed;
    struct device *device = &standin_devices[number];
    pthread_mutex_lock(&standin_lock);
    board_take(&device->board, -(int64_t)(device->graph_reserved - device->graph_used));
    device->graph_reserved = device->graph_used;
    pthread_mutex_unlock(&standin_lock);
    return OK;
}

API CUresult cuDeviceGetGraphMemAttribute(CUdevice number, int attribute, uint64_t *value) {
    CUresult failed = known_device(number);
    if (failed) return failed;
    if (!value || attribute < USED || attribute > RESERVED_HIGH) return INVALID_VALUE;
    const struct device *device = &standin_devices[number];
    *value = attribute < RESERVED ? device->graph_used : device->graph_reserved; /* high-water marks are not recorded */
    return OK;
}
