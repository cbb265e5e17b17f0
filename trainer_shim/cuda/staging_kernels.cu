#include "trainer_shim/cuda/staging_kernels.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "trainer_shim/cuda/cuda_handles.h"

namespace ballast {
namespace {

// ---- Constants --------------------------------------------------------------

constexpr int kThreads = 256;
constexpr uint64_t kMaxBlocks = 4096;
constexpr int64_t kUnsupervised = -100;
constexpr int kRecordWords = sizeof(SampleRecord) / sizeof(uint64_t);
// Index of the word whose upper half is SampleRecord::flags.
constexpr int kFlagsWord = offsetof(SampleRecord, flags) / sizeof(uint64_t);
static_assert(offsetof(SampleRecord, flags) % sizeof(uint64_t) == 4);
constexpr uint64_t kPlaceholderBit = uint64_t{kSampleIsPlaceholder} << 32;

// ---- Device helpers ---------------------------------------------------------

// At most one thread of a launch calls this; the first launch to report wins.
__device__ void Report(Finding* finding, Finding::Kind kind, uint32_t index,
                       uint64_t found0, uint64_t found1, uint64_t wanted0,
                       uint64_t wanted1) {
  volatile Finding* out = finding;
  if (out->kind != Finding::kNothing) return;
  out->index = index;
  out->found[0] = found0;
  out->found[1] = found1;
  out->wanted[0] = wanted0;
  out->wanted[1] = wanted1;
  __threadfence_system();
  out->kind = kind;
}

// Returns the sample that token `t` of a context rank belongs to. Every context
// rank has the same share of every sample's place.
__device__ inline uint32_t FindSample(const int32_t* cu_seqlens_padded,
                                      uint32_t samples, uint32_t context,
                                      int64_t t) {
  uint32_t low = 0;
  uint32_t high = samples;
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    if (cu_seqlens_padded[middle] / static_cast<int32_t>(context) <= t) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// proto/block/block_layout.h, LayOutLanguage: each array begins at a multiple
// of 16.
__device__ inline uint64_t ArrayBytes(uint64_t tokens) {
  return (tokens * sizeof(int32_t) + kArrayAlignment - 1) / kArrayAlignment *
         kArrayAlignment;
}

// ---- Kernels ----------------------------------------------------------------

// Runs as one thread: a rank has few peers, and the first peer's finding must
// be reported.
__global__ void CheckHeaders(const ExchangeHeader* received, uint32_t count,
                             const ExchangeHeader own, Finding* finding,
                             Finding::Kind kind) {
  for (uint32_t i = 0; i < count; ++i) {
    const ExchangeHeader& header = received[i];
    const uint64_t other = header.fingerprint ^ own.fingerprint;
    if (other >> kHeaderRankBits == 0 && header.place == own.place) continue;
    Report(finding, kind, i, header.fingerprint, header.place, own.fingerprint,
           own.place);
    return;
  }
}

// Runs as one block: each thread checks its samples, then the first wrong one
// is reported.
__global__ void __launch_bounds__(kThreads)
    CheckRecords(const CheckRecordsArguments a) {
  __shared__ uint32_t first;
  if (threadIdx.x == 0) first = a.count;
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < a.count; i += kThreads) {
    const RecordCheck& check = a.records[i];
    const uint64_t* found =
        reinterpret_cast<const uint64_t*>(a.landing + check.record);
    const uint64_t* wanted = reinterpret_cast<const uint64_t*>(&check.expected);
    bool same = true;
    for (int word = 0; word < kRecordWords; ++word) {
      const uint64_t ignored = word == kFlagsWord ? kPlaceholderBit : 0;
      same &= (found[word] & ~ignored) == wanted[word];
    }
    a.placeholders[i] = (found[kFlagsWord] & kPlaceholderBit) != 0;
    if (!same) atomicMin(&first, i);
  }
  __syncthreads();
  if (threadIdx.x != 0 || first == a.count) return;
  const RecordCheck& check = a.records[first];
  const SampleRecord& found =
      *reinterpret_cast<const SampleRecord*>(a.landing + check.record);
  Report(a.finding, Finding::kRecord, first, found.position,
         found.payload_bytes, check.expected.position,
         check.expected.payload_bytes);
}

// The fields of a sample: LanguagePayload::values, and the rows after them.
__device__ inline const uint32_t* FieldValues(const PackTextArguments& a,
                                              const TextSource& source) {
  const uint64_t positions = a.position_axes * source.tokens;
  return reinterpret_cast<const uint32_t*>(a.landing + source.payload +
                                           2 * ArrayBytes(source.tokens) +
                                           ArrayBytes(positions));
}

__device__ inline const uint32_t* FieldRows(const PackTextArguments& a,
                                            const TextSource& source) {
  return FieldValues(a, source) +
         ArrayBytes(a.fields.per_sample) / sizeof(uint32_t);
}

// One thread per sample.
__device__ inline void PackFieldValues(const PackTextArguments& a,
                                       uint64_t first, uint64_t threads) {
  if (a.fields.per_sample == 0) return;
  for (uint64_t s = first; s < a.samples; s += threads) {
    const uint32_t* values = FieldValues(a, a.texts[s]);
    for (uint32_t f = 0; f < a.fields.per_sample; ++f) {
      if (a.field_values[f] != nullptr) a.field_values[f][s] = values[f];
    }
  }
}

// One thread per token: neighbouring threads read and write neighbouring
// tokens.
__global__ void __launch_bounds__(kThreads)
    PackTokens(const PackTextArguments a) {
  const uint64_t threads = uint64_t{gridDim.x} * kThreads;
  const uint64_t first = uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  PackFieldValues(a, first, threads);
  for (uint64_t t = first; t < a.tokens; t += threads) {
    const uint32_t sample =
        FindSample(a.cu_seqlens_padded, a.samples, a.context.size, t);
    const TextSource source = a.texts[sample];
    const uint32_t begin = a.cu_seqlens_padded[sample] / a.context.size;
    const uint32_t end = a.cu_seqlens_padded[sample + 1] / a.context.size;
    const uint64_t i = ContextOffset(t - begin, end - begin, a.context);
    int64_t id = a.pad_id;
    int64_t label = kUnsupervised;
    const int32_t* positions = nullptr;
    const uint32_t* rows = nullptr;
    if (i < source.tokens) {
      const uint8_t* payload = a.landing + source.payload;
      const uint64_t array = ArrayBytes(source.tokens);
      id = reinterpret_cast<const int32_t*>(payload)[i];
      label = reinterpret_cast<const int32_t*>(payload + array)[i];
      positions = reinterpret_cast<const int32_t*>(payload + 2 * array) + i;
      if (a.fields.per_token > 0) rows = FieldRows(a, source) + i;
    }
    if (a.input_ids != nullptr) a.input_ids[t] = id;
    if (a.labels != nullptr) {
      a.labels[t] = label;
      // A label is the next token.
      float weight = 1.0f;
      if (a.weight_row >= 0 && i + 1 < source.tokens) {
        weight = __uint_as_float(rows[a.weight_row * source.tokens + 1]);
      }
      a.loss_mask[t] = label == kUnsupervised ? 0.0f : weight;
    }
    for (uint32_t f = 0; f < a.fields.per_token; ++f) {
      if (a.field_rows[f] == nullptr) continue;
      a.field_rows[f][t] = rows == nullptr ? 0 : rows[f * source.tokens];
    }
    if (a.attention_mask != nullptr) a.attention_mask[t] = i < source.tokens;
    if (a.position_ids == nullptr && a.float_positions == nullptr) continue;
    for (uint32_t axis = 0; axis < a.position_axes; ++axis) {
      const int32_t bits =
          positions == nullptr ? 0 : positions[axis * source.tokens];
      if (a.float_positions != nullptr) {
        a.float_positions[axis * a.tokens + t] = __int_as_float(bits);
      } else {
        a.position_ids[axis * a.tokens + t] = bits;
      }
    }
  }
}

// ---- Launchers --------------------------------------------------------------

absl::Status Missing(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is null"));
}

}  // namespace

absl::Status LoadStagingKernels() {
  return LoadKernels({reinterpret_cast<const void*>(CheckHeaders),
                      reinterpret_cast<const void*>(CheckRecords),
                      reinterpret_cast<const void*>(PackTokens)});
}

absl::Status LaunchCheckHeaders(const ExchangeHeader* received, uint32_t count,
                                const ExchangeHeader& own, Finding* finding,
                                cudaStream_t stream, Finding::Kind kind) {
  if (count == 0) return absl::OkStatus();
  if (received == nullptr) return Missing("received");
  if (finding == nullptr) return Missing("finding");
  return EnqueueKernel("launch of the check of headers", CheckHeaders, Grid(),
                       stream, received, count, own, finding, kind);
}

absl::Status LaunchCheckRecords(const CheckRecordsArguments& arguments,
                                cudaStream_t stream) {
  if (arguments.count == 0) return absl::OkStatus();
  if (arguments.landing == nullptr) return Missing("landing");
  if (arguments.records == nullptr) return Missing("records");
  if (arguments.placeholders == nullptr) return Missing("placeholders");
  if (arguments.finding == nullptr) return Missing("finding");
  return EnqueueKernel("launch of the check of records", CheckRecords,
                       {1, kThreads}, stream, arguments);
}

absl::Status LaunchPackText(const PackTextArguments& arguments,
                            cudaStream_t stream) {
  if (arguments.tokens == 0) return absl::OkStatus();
  if (arguments.landing == nullptr) return Missing("landing");
  if (arguments.texts == nullptr || arguments.cu_seqlens_padded == nullptr) {
    return Missing("texts or cu_seqlens_padded");
  }
  if ((arguments.labels == nullptr) != (arguments.loss_mask == nullptr)) {
    return Missing("one of labels and loss_mask");
  }
  if (arguments.fields.per_token > kMaxFields ||
      arguments.fields.per_sample > kMaxFields ||
      arguments.weight_row >= static_cast<int>(arguments.fields.per_token)) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.fields.per_token, " and ",
                     arguments.fields.per_sample, " fields, wanted at most ",
                     kMaxFields, " of each kind, and the weights among them"));
  }
  if (arguments.context.rank >= arguments.context.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("context rank ", arguments.context.rank, " of ",
                     arguments.context.size, " does not exist"));
  }
  if (arguments.samples == 0 ||
      arguments.tokens > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(arguments.tokens, " tokens of ", arguments.samples,
                     " samples, wanted at most 2^31-1 of at least one"));
  }
  const uint64_t blocks =
      std::min((arguments.tokens + kThreads - 1) / kThreads, kMaxBlocks);
  return EnqueueKernel("launch of the packing of text", PackTokens,
                       {blocks, kThreads}, stream, arguments);
}

}  // namespace ballast
