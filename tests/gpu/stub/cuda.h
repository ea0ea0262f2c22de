/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Names that CUPTI's headers take from cuda.h, which its wheels do not bring: opaque handles and
 * integers, enough to compile declarations. Only for comparing layouts.
 */
#ifndef STUB_CUDA_H
#define STUB_CUDA_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_VERSION 99999

typedef struct stub_ctx *CUcontext;
typedef struct stub_stream *CUstream;
typedef struct stub_module *CUmodule;
typedef struct stub_function *CUfunction;
typedef struct stub_graph *CUgraph;
typedef struct stub_graph_node *CUgraphNode;
typedef struct stub_graph_exec *CUgraphExec;
typedef struct stub_event *CUevent;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef int CUresult;
typedef int CUaccessPolicyWindow;
typedef int CUgraphNodeType;
typedef int CUmemAllocationType;
typedef int CUlaunchAttributeID;
typedef int CUstreamAttrID;
typedef int CUstreamAttrValue;
typedef int CUdevice_attribute;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { int id; uint64_t value; } CUlaunchAttribute;

#endif
