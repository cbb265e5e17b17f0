#include "trainer_shim/c_api/call.h"

#include <string>

#include "common/build_info.h"
#include "trainer_shim/c_api/c_api.h"

namespace ballast {
namespace {

constexpr uint32_t kMinSize = 8;
constexpr uint32_t kMaxSize = 1 << 16;

std::string& LastError() {
  thread_local std::string message;
  return message;
}

}  // namespace

int Finish(const absl::Status& status) {
  if (status.ok()) return BALLAST_OK;
  try {
    std::string message(status.message());
    std::replace(message.begin(), message.end(), '\n', ' ');
    LastError() = std::move(message);
  } catch (...) {
    LastError().clear();
  }
  return static_cast<int>(status.code());
}

absl::Status CheckStructSize(uint32_t size, const char* what) {
  if (size >= kMinSize && size <= kMaxSize) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ".struct_size is ", size,
                   ": set it to sizeof the struct before the call"));
}

}  // namespace ballast

uint32_t ballast_abi_version(void) { return BALLAST_ABI_VERSION; }

const char* ballast_version(void) { return ballast::kVersion; }

const char* ballast_status_name(int status) {
  switch (status) {
    case BALLAST_OK:
      return "OK";
    case BALLAST_CANCELLED:
      return "CANCELLED";
    case BALLAST_INVALID_ARGUMENT:
      return "INVALID_ARGUMENT";
    case BALLAST_DEADLINE_EXCEEDED:
      return "DEADLINE_EXCEEDED";
    case BALLAST_NOT_FOUND:
      return "NOT_FOUND";
    case BALLAST_ALREADY_EXISTS:
      return "ALREADY_EXISTS";
    case BALLAST_PERMISSION_DENIED:
      return "PERMISSION_DENIED";
    case BALLAST_RESOURCE_EXHAUSTED:
      return "RESOURCE_EXHAUSTED";
    case BALLAST_FAILED_PRECONDITION:
      return "FAILED_PRECONDITION";
    case BALLAST_ABORTED:
      return "ABORTED";
    case BALLAST_OUT_OF_RANGE:
      return "OUT_OF_RANGE";
    case BALLAST_UNIMPLEMENTED:
      return "UNIMPLEMENTED";
    case BALLAST_INTERNAL:
      return "INTERNAL";
    case BALLAST_UNAVAILABLE:
      return "UNAVAILABLE";
    case BALLAST_DATA_LOSS:
      return "DATA_LOSS";
    case BALLAST_UNAUTHENTICATED:
      return "UNAUTHENTICATED";
    default:
      return "UNKNOWN";
  }
}

const char* ballast_last_error(void) { return ballast::LastError().c_str(); }
