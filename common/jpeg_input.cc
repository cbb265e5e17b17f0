#include "common/jpeg_input.h"

#include <algorithm>
#include <cstddef>

namespace ballast {
namespace {

[[noreturn]] void OnError(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  (*errors->base.format_message)(info, errors->message);
  std::longjmp(errors->jump, 1);
}

void IgnoreMessage(j_common_ptr) {}

void DoNothing(j_decompress_ptr) {}

boolean Suspend(j_decompress_ptr) { return FALSE; }

void SkipBytes(j_decompress_ptr info, long count) {
  jpeg_source_mgr* source = info->src;
  const size_t skipped = count <= 0 ? 0
                                    : std::min(static_cast<size_t>(count),
                                               source->bytes_in_buffer);
  source->next_input_byte += skipped;
  source->bytes_in_buffer -= skipped;
}

}  // namespace

JpegErrors::JpegErrors() {
  jpeg_std_error(&base);
  base.error_exit = OnError;
  base.output_message = IgnoreMessage;
}

JpegInput::JpegInput() {
  base.init_source = DoNothing;
  base.fill_input_buffer = Suspend;
  base.skip_input_data = SkipBytes;
  base.resync_to_restart = jpeg_resync_to_restart;
  base.term_source = DoNothing;
}

void JpegInput::Set(absl::string_view bytes) {
  base.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
  base.bytes_in_buffer = bytes.size();
}

}  // namespace ballast
