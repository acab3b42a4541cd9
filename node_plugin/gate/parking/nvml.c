/* NVML's part of a park: its calls are shut before the driver's, and opened after them (nvml/calls.c). A program may load NVML's
 * library at any time, or not at all. It reads the answer at its first call, and each change is told to it from then on. */
#include "parking/nvml.h"

#include "driver/driver.h"
#include "nvml/nvml.h"

__attribute__((visibility("default"))) _Atomic int NVML_ANSWER;

/* Whatever happens at once, the library's first call finds the answer, or its function is found here. */
static bool tell(int answer) {
    atomic_store(&NVML_ANSWER, answer);
    _Atomic nvml_follow *place = process_symbol(NVML_TEXT(NVML_FOLLOW));
    nvml_follow follow = place ? atomic_load(place) : NULL;
    return !follow || follow();
}

bool nvml_shut(void) { return tell(NVML_TIMEOUT); }

void nvml_open(void) { tell(NVML_SUCCESS); }

void nvml_lose(void) { tell(NVML_UNKNOWN); }

void nvml_fork(void) {
    if (atomic_load(&NVML_ANSWER)) atomic_store(&NVML_ANSWER, NVML_UNINITIALIZED);
}
