"""A program that initializes CUDA and lists its GPUs, for ``python -c``."""

LIST_GPUS = """
import ctypes, os, subprocess, sys
driver = ctypes.CDLL("libcuda.so.1")
getenv = ctypes.CDLL(None).getenv
getenv.restype = ctypes.c_char_p
def list_gpus():
    count, seen = ctypes.c_int(), []
    result = driver.cuInit(0)
    driver.cuDeviceGetCount(ctypes.byref(count))
    for i in range(count.value if result == 0 else 0):
        uuid = (ctypes.c_char * 16)()
        driver.cuDeviceGetUuid(uuid, i)
        seen.append(uuid.raw[3])
    value = getenv(b"CUDA_VISIBLE_DEVICES")
    print(result, *seen, "|", "-" if value is None else value.decode(), flush=True)
"""
"""Each call prints the result of cuInit, the fourth byte of each UUID, and the value of the variable then."""
