#include "server/media/image/jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstring>
#include <new>

#include <jerror.h>

#include "absl/strings/str_cat.h"
#include "common/jpeg_input.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {

namespace {

// A progressive file of a few bytes per scan can request any number of passes
// over the image. Encoders write about ten.
constexpr int kMaxScans = 100;

void LimitScans(j_common_ptr info) {
  const auto* decompress = reinterpret_cast<j_decompress_ptr>(info);
  if (decompress->input_scan_number <= kMaxScans) return;
  auto* error = reinterpret_cast<JpegErrors*>(info->err);
  error->base.msg_code = 0;
  std::snprintf(error->message, sizeof(error->message), "more than %d scans",
                kMaxScans);
  std::longjmp(error->jump, 1);
}

// Pillow treats every CMYK file as Adobe's, inverted: libjpeg returns 255 minus
// the ink. Then Pillow's own conversion to RGB follows: 255 - k, minus c's
// share of it.
void InvertedCmykToRgb(const uint8_t* cmyk, size_t pixels, uint8_t* rgb) {
  for (size_t i = 0; i < pixels; ++i, cmyk += 4, rgb += 3) {
    const int white = cmyk[3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[c]) * white + 128;
      rgb[c] = static_cast<uint8_t>(white - ((product + (product >> 8)) >> 8));
    }
  }
}

// The side length of libjpeg's output at scale n/8.
uint64_t Scaled(uint32_t side, unsigned n) {
  return (uint64_t{side} * n + 7) / 8;
}

}  // namespace

struct JpegDecoder::State {
  explicit State(ScratchArena* arena) : arena(arena) {
    info.err = &error.base;
    progress.progress_monitor = LimitScans;
    created = Create();
  }
  ~State() { jpeg_destroy_decompress(&info); }

  enum class Outcome { kDone, kTruncated, kError };

  // These functions may longjmp, so none has a local that needs a destructor.

  bool Create() {
    if (setjmp(error.jump)) return false;
    jpeg_create_decompress(&info);
    info.src = &input.base;
    info.progress = &progress;
    InstallJpegMemory(&info, arena);
    return true;
  }

  Outcome ReadHeader() {
    if (setjmp(error.jump)) return Outcome::kError;
    int header = JPEG_SUSPENDED;
    do {
      header = jpeg_read_header(&info, FALSE);
    } while (header == JPEG_HEADER_TABLES_ONLY);
    if (header == JPEG_SUSPENDED) return Outcome::kTruncated;
    info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
    return Outcome::kDone;
  }

  // Other scales have no vector code in libjpeg-turbo and take longer than a
  // full decode.
  void ChooseScale(const ImageSize& cover) {
    unsigned n = 1;
    while (n < 8 && (Scaled(info.image_width, n) < cover.width ||
                     Scaled(info.image_height, n) < cover.height)) {
      n *= 2;
    }
    info.scale_num = n;
    info.scale_denom = 8;
    info.do_fancy_upsampling = FALSE;
  }

  Outcome Start() {
    if (setjmp(error.jump)) return Outcome::kError;
    if (!jpeg_start_decompress(&info)) return Outcome::kTruncated;
    return Outcome::kDone;
  }

  Outcome ReadRows(RowSink* sink) {
    if (setjmp(error.jump)) return Outcome::kError;
    if (info.out_color_space == JCS_CMYK) return ReadCmykRows(sink);
    while (info.output_scanline < info.output_height) {
      const absl::Span<uint8_t* const> rows = sink->NextRows();
      size_t read = 0;
      while (read < rows.size()) {
        // libjpeg does not write through the pointers.
        const JDIMENSION more = jpeg_read_scanlines(
            &info, const_cast<JSAMPARRAY>(rows.data() + read),
            static_cast<JDIMENSION>(rows.size() - read));
        if (more == 0) return Outcome::kTruncated;
        read += more;
      }
      sink->RowsDone(read);
    }
    return Finished();
  }

  Outcome ReadCmykRows(RowSink* sink) {
    JSAMPARRAY cmyk =
        (*info.mem->alloc_sarray)(reinterpret_cast<j_common_ptr>(&info),
                                  JPOOL_IMAGE, info.output_width * 4, 1);
    while (info.output_scanline < info.output_height) {
      if (jpeg_read_scanlines(&info, cmyk, 1) != 1) return Outcome::kTruncated;
      InvertedCmykToRgb(cmyk[0], info.output_width, sink->NextRows()[0]);
      sink->RowsDone(1);
    }
    return Finished();
  }

  Outcome Finished() {
    // Suspends if the end-of-image marker is missing; all rows are there.
    jpeg_finish_decompress(&info);
    return Outcome::kDone;
  }

  absl::Status Explain(Outcome outcome) const {
    switch (outcome) {
      case Outcome::kDone:
        return absl::OkStatus();
      case Outcome::kTruncated:
        return DataFaultError("JPEG is truncated");
      case Outcome::kError:
        break;
    }
    if (error.base.msg_code == JERR_OUT_OF_MEMORY) {
      return arena->Refusal(
          absl::StrCat(info.progressive_mode ? "progressive " : "", "JPEG of ",
                       info.image_width, "x", info.image_height, " pixels"));
    }
    return DataFaultError(absl::StrCat("JPEG is damaged: ", error.message));
  }

  ScratchArena* const arena;
  JpegErrors error;
  JpegInput input;
  jpeg_progress_mgr progress = {};
  jpeg_decompress_struct info = {};
  bool created = false;
};

JpegDecoder::JpegDecoder(ScratchArena* arena)
    : state_(std::make_unique<State>(arena)) {}

JpegDecoder::~JpegDecoder() = default;

absl::Status JpegDecoder::Decode(absl::string_view bytes, ImageSize size,
                                 const ImageSize* cover, RowSink* sink) {
  State& state = *state_;
  if (!state.created) {
    return absl::InternalError(
        absl::StrCat("libjpeg cannot start: ", state.error.message));
  }
  state.input.Set(bytes);
  BALLAST_RETURN_IF_ERROR(state.Explain(state.ReadHeader()));
  const jpeg_decompress_struct& info = state.info;
  if (info.image_width != size.width || info.image_height != size.height) {
    return DataFaultError(absl::StrCat(
        "JPEG has frame headers of different sizes, one of ", size.width, "x",
        size.height, " and one of ", info.image_width, "x", info.image_height));
  }
  if (cover != nullptr) state.ChooseScale(*cover);
  BALLAST_RETURN_IF_ERROR(state.Explain(state.Start()));
  BALLAST_RETURN_IF_ERROR(sink->Begin(info.output_width, info.output_height));
  return state.Explain(state.ReadRows(sink));
}

uint64_t JpegDecoder::warnings() const {
  return static_cast<uint64_t>(state_->error.base.num_warnings);
}

void JpegDecoder::Release() {
  if (state_->created) ResetJpegMemory(&state_->info);
}

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
  Coefficients* coefficients = nullptr;  // without memory yet
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
