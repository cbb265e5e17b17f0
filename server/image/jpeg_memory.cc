#include "server/image/jpeg_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include <jerror.h>

namespace ballast {
namespace {

// libjpeg-turbo's vector code reads and writes up to this boundary.
constexpr size_t kRowAlignment = 128;

// The coefficients of one component of a progressive image, all in memory.
struct Coefficients {
  JBLOCKARRAY rows = nullptr;
  JDIMENSION blocks_a_row = 0;
  JDIMENSION row_count = 0;
  bool zero = false;
  Coefficients* next = nullptr;
};

// Reached through client_data.
struct Memory {
  ScratchArena* arena = nullptr;
  Coefficients* coefficients = nullptr;  // not yet given memory
};

Memory* From(j_common_ptr info) {
  return static_cast<Memory*>(info->client_data);
}

[[noreturn]] void Fail(j_common_ptr info, int code) {
  info->err->msg_code = code;
  info->err->msg_parm.i[0] = 0;
  (*info->err->error_exit)(info);
  // error_exit does not return.
  __builtin_unreachable();
}

void* Allocate(j_common_ptr info, int, size_t bytes) {
  void* memory = From(info)->arena->Allocate(bytes);
  if (memory == nullptr) Fail(info, JERR_OUT_OF_MEMORY);
  return memory;
}

// Allocates `count` contiguous rows of `bytes` each, and pointers to them.
template <class Row>
Row* AllocateRows(j_common_ptr info, uint64_t bytes, JDIMENSION count) {
  ScratchArena* arena = From(info)->arena;
  auto* rows = arena->AllocateArray<Row>(count);
  auto* memory = arena->AllocateArray<uint8_t>(bytes * count);
  if (rows == nullptr || memory == nullptr) Fail(info, JERR_OUT_OF_MEMORY);
  for (JDIMENSION row = 0; row < count; ++row) {
    rows[row] = reinterpret_cast<Row>(memory + row * bytes);
  }
  return rows;
}

JSAMPARRAY AllocateSamples(j_common_ptr info, int, JDIMENSION samples,
                           JDIMENSION rows) {
  const uint64_t bytes =
      (samples + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  return AllocateRows<JSAMPROW>(info, bytes, rows);
}

JBLOCKARRAY AllocateBlocks(j_common_ptr info, int, JDIMENSION blocks,
                           JDIMENSION rows) {
  return AllocateRows<JBLOCKROW>(info, uint64_t{blocks} * sizeof(JBLOCK), rows);
}

// Called only for colour quantisation, which we do not use.
jvirt_sarray_ptr RequestSamples(j_common_ptr info, int, boolean, JDIMENSION,
                                JDIMENSION, JDIMENSION) {
  Fail(info, JERR_NOT_COMPILED);
}

JSAMPARRAY AccessSamples(j_common_ptr info, jvirt_sarray_ptr, JDIMENSION,
                         JDIMENSION, boolean) {
  Fail(info, JERR_BAD_VIRTUAL_ACCESS);
}

jvirt_barray_ptr RequestBlocks(j_common_ptr info, int pool, boolean zero,
                               JDIMENSION blocks, JDIMENSION rows, JDIMENSION) {
  auto* made = new (Allocate(info, pool, sizeof(Coefficients))) Coefficients;
  made->blocks_a_row = blocks;
  made->row_count = rows;
  made->zero = zero;
  made->next = From(info)->coefficients;
  From(info)->coefficients = made;
  return reinterpret_cast<jvirt_barray_ptr>(made);
}

void RealizeArrays(j_common_ptr info) {
  Memory* memory = From(info);
  for (Coefficients* c = memory->coefficients; c != nullptr; c = c->next) {
    c->rows = AllocateBlocks(info, JPOOL_IMAGE, c->blocks_a_row, c->row_count);
    if (c->zero && c->row_count > 0) {
      std::memset(c->rows[0], 0,
                  sizeof(JBLOCK) * c->blocks_a_row * c->row_count);
    }
  }
  memory->coefficients = nullptr;
}

JBLOCKARRAY AccessBlocks(j_common_ptr info, jvirt_barray_ptr array,
                         JDIMENSION start, JDIMENSION rows, boolean) {
  const auto* found = reinterpret_cast<Coefficients*>(array);
  if (found->rows == nullptr || start > found->row_count ||
      rows > found->row_count - start) {
    Fail(info, JERR_BAD_VIRTUAL_ACCESS);
  }
  return found->rows + start;
}

// Frees nothing: the arena is reset instead.
void FreePool(j_common_ptr info, int) { From(info)->coefficients = nullptr; }

}  // namespace

void InstallJpegMemory(jpeg_decompress_struct* info, ScratchArena* arena) {
  auto* common = reinterpret_cast<j_common_ptr>(info);
  auto* memory =
      new ((*info->mem->alloc_small)(common, JPOOL_PERMANENT, sizeof(Memory)))
          Memory;
  memory->arena = arena;
  info->client_data = memory;
  info->mem->alloc_small = Allocate;
  info->mem->alloc_large = Allocate;
  info->mem->alloc_sarray = AllocateSamples;
  info->mem->alloc_barray = AllocateBlocks;
  info->mem->request_virt_sarray = RequestSamples;
  info->mem->request_virt_barray = RequestBlocks;
  info->mem->realize_virt_arrays = RealizeArrays;
  info->mem->access_virt_sarray = AccessSamples;
  info->mem->access_virt_barray = AccessBlocks;
  info->mem->free_pool = FreePool;
}

void ResetJpegMemory(jpeg_decompress_struct* info) {
  jpeg_abort_decompress(info);
  for (int i = 0; i < NUM_QUANT_TBLS; ++i) info->quant_tbl_ptrs[i] = nullptr;
  for (int i = 0; i < NUM_HUFF_TBLS; ++i) {
    info->dc_huff_tbl_ptrs[i] = nullptr;
    info->ac_huff_tbl_ptrs[i] = nullptr;
  }
}

}  // namespace ballast
