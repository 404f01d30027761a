/* SPDX-License-Identifier: Apache-2.0
 * The part of DLPack 1.x that this module reads: the description of a tensor, and the table of
 * functions in a tensor type's __dlpack_c_exchange_api__, a capsule named "dlpack_exchange_api".
 * Layouts follow the DLPack specification (dmlc/dlpack, "C Exchange API"). Its major version is
 * checked. */
#ifndef ATTUNE_PYTHON_DLPACK_H_
#define ATTUNE_PYTHON_DLPACK_H_

#include <stdint.h>

enum { kDlpackMajor = 1 };
enum { kDlpackCpu = 1, kDlpackCuda = 2 };     /* device_type */
enum { kDlpackFloat = 2, kDlpackBfloat = 4 }; /* type_code */

typedef struct DlpackTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides; /* elements; NULL: contiguous (before DLPack 1.2) */
  uint64_t byte_offset;
} DlpackTensor;

typedef struct DlpackExchange {
  uint32_t major;
  uint32_t minor;
  struct DlpackExchange* previous;
  void* allocate; /* not used: the library's allocator would not own such tensors */
  void* managed_from_object;
  void* managed_to_object;
  int (*tensor_from_object)(void* object, DlpackTensor* tensor); /* may be NULL */
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
} DlpackExchange;

#endif /* ATTUNE_PYTHON_DLPACK_H_ */
