/* The list of the functions that the gate intercepts. */
#ifndef GATE_DRIVER_GATED_H
#define GATE_DRIVER_GATED_H

#include <stdint.h>

/* G: symbol, its name for cuGetProcAddress, the first CUDA version in which that name means this form, and whether this is
 * the form for per-thread default streams. */
#define GATED(G) \
    G(cuInit, "cuInit", 2000, 0) G(cuGetProcAddress, "cuGetProcAddress", 11030, 0) G(cuGetProcAddress_v2, "cuGetProcAddress", 12000, 0) \
    G(cuLaunchKernel, "cuLaunchKernel", 4000, 0) G(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, 1) \
    G(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, 0) G(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, 1) \
    G(cuLaunchCooperativeKernel, "cuLaunchCooperativeKernel", 9000, 0) \
    G(cuLaunchCooperativeKernel_ptsz, "cuLaunchCooperativeKernel", 9000, 1) \
    G(cuLaunchCooperativeKernelMultiDevice, "cuLaunchCooperativeKernelMultiDevice", 9000, 0) \
    G(cuGraphLaunch, "cuGraphLaunch", 10000, 0) G(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, 1) \
    G(cuLaunch, "cuLaunch", 2000, 0) G(cuLaunchGrid, "cuLaunchGrid", 2000, 0) \
    G(cuLaunchGridAsync, "cuLaunchGridAsync", 2000, 0) \
    G(cuStreamBeginCapture, "cuStreamBeginCapture", 10000, 0) \
    G(cuStreamBeginCapture_ptsz, "cuStreamBeginCapture", 10000, 1) \
    G(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, 0) \
    G(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, 1) \
    G(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030, 0) \
    G(cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 12030, 1) \
    G(cuStreamDestroy, "cuStreamDestroy", 2000, 0) G(cuStreamDestroy_v2, "cuStreamDestroy", 4000, 0) \
    G(cuCtxDestroy, "cuCtxDestroy", 2000, 0) G(cuCtxDestroy_v2, "cuCtxDestroy", 4000, 0) \
    G(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, 0) \
    G(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, 0) \
    G(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, 0) \
    G(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, 0) \
    G(cuMemAlloc, "cuMemAlloc", 2000, 0) G(cuMemAlloc_v2, "cuMemAlloc", 3020, 0) \
    G(cuMemAllocPitch, "cuMemAllocPitch", 2000, 0) G(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, 0) \
    G(cuMemAllocManaged, "cuMemAllocManaged", 6000, 0) \
    G(cuMemAllocAsync, "cuMemAllocAsync", 11020, 0) G(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, 1) \
    G(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, 0) \
    G(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, 1) \
    G(cuMemFree, "cuMemFree", 2000, 0) G(cuMemFree_v2, "cuMemFree", 3020, 0) \
    G(cuMemFreeAsync, "cuMemFreeAsync", 11020, 0) G(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, 1) \
    G(cuMemCreate, "cuMemCreate", 10020, 0) G(cuMemRelease, "cuMemRelease", 10020, 0) \
    G(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, 0) \
    G(cuMemExportToShareableHandle, "cuMemExportToShareableHandle", 10020, 0) \
    G(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, 0) \
    G(cuMemMap, "cuMemMap", 10020, 0) G(cuMemUnmap, "cuMemUnmap", 10020, 0) \
    G(cuArrayCreate, "cuArrayCreate", 2000, 0) G(cuArrayCreate_v2, "cuArrayCreate", 3020, 0) \
    G(cuArray3DCreate, "cuArray3DCreate", 2000, 0) G(cuArray3DCreate_v2, "cuArray3DCreate", 3020, 0) \
    G(cuArrayDestroy, "cuArrayDestroy", 2000, 0) \
    G(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, 0) \
    G(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, 0) \
    G(cuMemGetInfo, "cuMemGetInfo", 2000, 0) G(cuMemGetInfo_v2, "cuMemGetInfo", 3020, 0) \
    G(cuDeviceTotalMem, "cuDeviceTotalMem", 2000, 0) G(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, 0) \
    GATED_MEMORY(G) GATED_COPIES(G) GATED_ENDS(G)

/* Whether submitted work has ended. */
#define GATED_ENDS(G) \
    G(cuStreamQuery, "cuStreamQuery", 2000, 0) G(cuStreamQuery_ptsz, "cuStreamQuery", 7000, 1) \
    G(cuStreamSynchronize, "cuStreamSynchronize", 2000, 0) G(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, 1) \
    G(cuEventQuery, "cuEventQuery", 2000, 0) G(cuEventSynchronize, "cuEventSynchronize", 2000, 0) \
    G(cuCtxSynchronize, "cuCtxSynchronize", 2000, 0) G(cuCtxSynchronize_v2, "cuCtxSynchronize", 13000, 0) \
    G(cuEventElapsedTime, "cuEventElapsedTime", 2000, 0) G(cuEventElapsedTime_v2, "cuEventElapsedTime", 12080, 0)

/* Memory other than plain allocations. */
#define GATED_MEMORY(G) \
    G(cuCtxCreate, "cuCtxCreate", 2000, 0) G(cuCtxCreate_v2, "cuCtxCreate", 3020, 0) \
    G(cuCtxCreate_v3, "cuCtxCreate", 11040, 0) G(cuCtxCreate_v4, "cuCtxCreate", 12050, 0) \
    G(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, 0) G(cuCtxSetLimit, "cuCtxSetLimit", 3010, 0) \
    G(cuModuleLoad, "cuModuleLoad", 2000, 0) G(cuModuleLoadData, "cuModuleLoadData", 2000, 0) \
    G(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, 0) G(cuModuleUnload, "cuModuleUnload", 2000, 0) \
    G(cuLibraryLoadData, "cuLibraryLoadData", 12000, 0) G(cuLibraryLoadFromFile, "cuLibraryLoadFromFile", 12000, 0) \
    G(cuLibraryUnload, "cuLibraryUnload", 12000, 0) \
    G(cuImportExternalMemory, "cuImportExternalMemory", 10000, 0) \
    G(cuExternalMemoryGetMappedBuffer, "cuExternalMemoryGetMappedBuffer", 10000, 0) \
    G(cuExternalMemoryGetMappedMipmappedArray, "cuExternalMemoryGetMappedMipmappedArray", 10000, 0) \
    G(cuDestroyExternalMemory, "cuDestroyExternalMemory", 10000, 0) \
    G(cuMemPoolCreate, "cuMemPoolCreate", 11020, 0) G(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, 0) \
    G(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020, 0) G(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, 0) \
    G(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040, 0) \
    G(cuGraphAddMemFreeNode, "cuGraphAddMemFreeNode", 11040, 0) \
    G(cuGraphAddNode, "cuGraphAddNode", 12020, 0) G(cuGraphAddNode_v2, "cuGraphAddNode", 12030, 0) \
    G(cuGraphAddNode_v3, "cuGraphAddNode", 13040, 0) \
    G(cuGraphInstantiate, "cuGraphInstantiate", 10000, 0) G(cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, 0) \
    G(cuGraphInstantiateWithFlags, "cuGraphInstantiate", 12000, 0) \
    G(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, 0) \
    G(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, 1) \
    G(cuGraphUpload, "cuGraphUpload", 11010, 0) G(cuGraphUpload_ptsz, "cuGraphUpload", 11010, 1) \
    G(cuGraphDestroy, "cuGraphDestroy", 10000, 0) G(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, 0) \
    G(cuDeviceGraphMemTrim, "cuDeviceGraphMemTrim", 11040, 0)

/* Copies and fills. */
#define GATED_COPIES(G) \
    G(cuMemcpy, "cuMemcpy", 4000, 0) G(cuMemcpy_ptds, "cuMemcpy", 7000, 1) G(cuMemcpyHtoD_v2, "cuMemcpyHtoD", 3020, 0) \
    G(cuMemcpyHtoD_v2_ptds, "cuMemcpyHtoD", 7000, 1) G(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 3020, 0) \
    G(cuMemcpyDtoH_v2_ptds, "cuMemcpyDtoH", 7000, 1) G(cuMemcpyDtoD_v2, "cuMemcpyDtoD", 3020, 0) \
    G(cuMemcpyDtoD_v2_ptds, "cuMemcpyDtoD", 7000, 1) G(cuMemcpyPeer, "cuMemcpyPeer", 4000, 0) \
    G(cuMemcpyPeer_ptds, "cuMemcpyPeer", 7000, 1) G(cuMemcpyHtoA_v2, "cuMemcpyHtoA", 3020, 0) \
    G(cuMemcpyHtoA_v2_ptds, "cuMemcpyHtoA", 7000, 1) G(cuMemcpyAtoH_v2, "cuMemcpyAtoH", 3020, 0) \
    G(cuMemcpyAtoH_v2_ptds, "cuMemcpyAtoH", 7000, 1) G(cuMemcpyDtoA_v2, "cuMemcpyDtoA", 3020, 0) \
    G(cuMemcpyDtoA_v2_ptds, "cuMemcpyDtoA", 7000, 1) G(cuMemcpyAtoD_v2, "cuMemcpyAtoD", 3020, 0) \
    G(cuMemcpyAtoD_v2_ptds, "cuMemcpyAtoD", 7000, 1) G(cuMemcpyAtoA_v2, "cuMemcpyAtoA", 3020, 0) \
    G(cuMemcpyAtoA_v2_ptds, "cuMemcpyAtoA", 7000, 1) G(cuMemcpyAsync, "cuMemcpyAsync", 4000, 0) \
    G(cuMemcpyAsync_ptsz, "cuMemcpyAsync", 7000, 1) G(cuMemcpyHtoDAsync_v2, "cuMemcpyHtoDAsync", 3020, 0) \
    G(cuMemcpyHtoDAsync_v2_ptsz, "cuMemcpyHtoDAsync", 7000, 1) G(cuMemcpyDtoHAsync_v2, "cuMemcpyDtoHAsync", 3020, 0) \
    G(cuMemcpyDtoHAsync_v2_ptsz, "cuMemcpyDtoHAsync", 7000, 1) G(cuMemcpyDtoDAsync_v2, "cuMemcpyDtoDAsync", 3020, 0) \
    G(cuMemcpyDtoDAsync_v2_ptsz, "cuMemcpyDtoDAsync", 7000, 1) G(cuMemcpyPeerAsync, "cuMemcpyPeerAsync", 4000, 0) \
    G(cuMemcpyPeerAsync_ptsz, "cuMemcpyPeerAsync", 7000, 1) G(cuMemcpyHtoAAsync_v2, "cuMemcpyHtoAAsync", 3020, 0) \
    G(cuMemcpyHtoAAsync_v2_ptsz, "cuMemcpyHtoAAsync", 7000, 1) G(cuMemcpyAtoHAsync_v2, "cuMemcpyAtoHAsync", 3020, 0) \
    G(cuMemcpyAtoHAsync_v2_ptsz, "cuMemcpyAtoHAsync", 7000, 1) \
    G(cuMemcpyWithAttributesAsync, "cuMemcpyWithAttributesAsync", 13020, 0) \
    G(cuMemcpyWithAttributesAsync_ptsz, "cuMemcpyWithAttributesAsync", 13020, 1) G(cuMemcpy2D_v2, "cuMemcpy2D", 3020, 0) \
    G(cuMemcpy2D_v2_ptds, "cuMemcpy2D", 7000, 1) G(cuMemcpy2DUnaligned_v2, "cuMemcpy2DUnaligned", 3020, 0) \
    G(cuMemcpy2DUnaligned_v2_ptds, "cuMemcpy2DUnaligned", 7000, 1) G(cuMemcpy3D_v2, "cuMemcpy3D", 3020, 0) \
    G(cuMemcpy3D_v2_ptds, "cuMemcpy3D", 7000, 1) G(cuMemcpy3DPeer, "cuMemcpy3DPeer", 4000, 0) \
    G(cuMemcpy3DPeer_ptds, "cuMemcpy3DPeer", 7000, 1) G(cuMemcpy2DAsync_v2, "cuMemcpy2DAsync", 3020, 0) \
    G(cuMemcpy2DAsync_v2_ptsz, "cuMemcpy2DAsync", 7000, 1) G(cuMemcpy3DAsync_v2, "cuMemcpy3DAsync", 3020, 0) \
    G(cuMemcpy3DAsync_v2_ptsz, "cuMemcpy3DAsync", 7000, 1) G(cuMemcpy3DPeerAsync, "cuMemcpy3DPeerAsync", 4000, 0) \
    G(cuMemcpy3DPeerAsync_ptsz, "cuMemcpy3DPeerAsync", 7000, 1) G(cuMemcpyBatchAsync, "cuMemcpyBatchAsync", 12080, 0) \
    G(cuMemcpyBatchAsync_ptsz, "cuMemcpyBatchAsync", 12080, 1) G(cuMemcpyBatchAsync_v2, "cuMemcpyBatchAsync", 13000, 0) \
    G(cuMemcpyBatchAsync_v2_ptsz, "cuMemcpyBatchAsync", 13000, 1) \
    G(cuMemcpy3DBatchAsync, "cuMemcpy3DBatchAsync", 12080, 0) \
    G(cuMemcpy3DBatchAsync_ptsz, "cuMemcpy3DBatchAsync", 12080, 1) \
    G(cuMemcpy3DBatchAsync_v2, "cuMemcpy3DBatchAsync", 13000, 0) \
    G(cuMemcpy3DBatchAsync_v2_ptsz, "cuMemcpy3DBatchAsync", 13000, 1) \
    G(cuMemcpy3DWithAttributesAsync, "cuMemcpy3DWithAttributesAsync", 13020, 0) \
    G(cuMemcpy3DWithAttributesAsync_ptsz, "cuMemcpy3DWithAttributesAsync", 13020, 1) \
    G(cuMemPrefetchAsync, "cuMemPrefetchAsync", 8000, 0) G(cuMemPrefetchAsync_ptsz, "cuMemPrefetchAsync", 8000, 1) \
    G(cuMemPrefetchAsync_v2, "cuMemPrefetchAsync", 12020, 0) \
    G(cuMemPrefetchAsync_v2_ptsz, "cuMemPrefetchAsync", 12020, 1) \
    G(cuMemPrefetchBatchAsync, "cuMemPrefetchBatchAsync", 13000, 0) \
    G(cuMemPrefetchBatchAsync_ptsz, "cuMemPrefetchBatchAsync", 13000, 1) \
    G(cuMemDiscardAndPrefetchBatchAsync, "cuMemDiscardAndPrefetchBatchAsync", 13000, 0) \
    G(cuMemDiscardAndPrefetchBatchAsync_ptsz, "cuMemDiscardAndPrefetchBatchAsync", 13000, 1) \
    G(cuMemBatchDecompressAsync, "cuMemBatchDecompressAsync", 12060, 0) \
    G(cuMemBatchDecompressAsync_ptsz, "cuMemBatchDecompressAsync", 12060, 1) \
    G(cuStreamWriteValue32, "cuStreamWriteValue32", 8000, 0) \
    G(cuStreamWriteValue32_ptsz, "cuStreamWriteValue32", 8000, 1) \
    G(cuStreamWriteValue32_v2, "cuStreamWriteValue32", 11070, 0) \
    G(cuStreamWriteValue32_v2_ptsz, "cuStreamWriteValue32", 11070, 1) \
    G(cuStreamWriteValue64, "cuStreamWriteValue64", 9000, 0) \
    G(cuStreamWriteValue64_ptsz, "cuStreamWriteValue64", 9000, 1) \
    G(cuStreamWriteValue64_v2, "cuStreamWriteValue64", 11070, 0) \
    G(cuStreamWriteValue64_v2_ptsz, "cuStreamWriteValue64", 11070, 1) \
    G(cuStreamBatchMemOp, "cuStreamBatchMemOp", 8000, 0) G(cuStreamBatchMemOp_ptsz, "cuStreamBatchMemOp", 8000, 1) \
    G(cuStreamBatchMemOp_v2, "cuStreamBatchMemOp", 11070, 0) \
    G(cuStreamBatchMemOp_v2_ptsz, "cuStreamBatchMemOp", 11070, 1) G(cuMemsetD8_v2, "cuMemsetD8", 3020, 0) \
    G(cuMemsetD8_v2_ptds, "cuMemsetD8", 7000, 1) G(cuMemsetD8Async, "cuMemsetD8Async", 3020, 0) \
    G(cuMemsetD8Async_ptsz, "cuMemsetD8Async", 7000, 1) G(cuMemsetD2D8_v2, "cuMemsetD2D8", 3020, 0) \
    G(cuMemsetD2D8_v2_ptds, "cuMemsetD2D8", 7000, 1) G(cuMemsetD2D8Async, "cuMemsetD2D8Async", 3020, 0) \
    G(cuMemsetD2D8Async_ptsz, "cuMemsetD2D8Async", 7000, 1) G(cuMemsetD16_v2, "cuMemsetD16", 3020, 0) \
    G(cuMemsetD16_v2_ptds, "cuMemsetD16", 7000, 1) G(cuMemsetD16Async, "cuMemsetD16Async", 3020, 0) \
    G(cuMemsetD16Async_ptsz, "cuMemsetD16Async", 7000, 1) G(cuMemsetD2D16_v2, "cuMemsetD2D16", 3020, 0) \
    G(cuMemsetD2D16_v2_ptds, "cuMemsetD2D16", 7000, 1) G(cuMemsetD2D16Async, "cuMemsetD2D16Async", 3020, 0) \
    G(cuMemsetD2D16Async_ptsz, "cuMemsetD2D16Async", 7000, 1) G(cuMemsetD32_v2, "cuMemsetD32", 3020, 0) \
    G(cuMemsetD32_v2_ptds, "cuMemsetD32", 7000, 1) G(cuMemsetD32Async, "cuMemsetD32Async", 3020, 0) \
    G(cuMemsetD32Async_ptsz, "cuMemsetD32Async", 7000, 1) G(cuMemsetD2D32_v2, "cuMemsetD2D32", 3020, 0) \
    G(cuMemsetD2D32_v2_ptds, "cuMemsetD2D32", 7000, 1) G(cuMemsetD2D32Async, "cuMemsetD2D32Async", 3020, 0) \
    G(cuMemsetD2D32Async_ptsz, "cuMemsetD2D32Async", 7000, 1)

/* Return the index of the gated function that cuGetProcAddress means by a name, a version and flags; -1: none. */
int gated_form(const char *name, int version, uint64_t flags);
/* Return the gate's own function in that row. */
void *gated_function(unsigned index);

#endif
