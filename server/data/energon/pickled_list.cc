#include "server/data/energon/pickled_list.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// The opcodes of lists and bytes, as in Python's pickletools.
enum Opcode : uint8_t {
  kProtocol = 0x80,
  kFrame = 0x95,
  kEmptyList = ']',
  kMark = '(',
  kAppend = 'a',
  kAppends = 'e',
  kShortBytes = 'C',
  kBytes = 'B',
  kBytes8 = 0x8e,
  kMemoize = 0x94,
  kPut = 'q',
  kLongPut = 'r',
  kGet = 'h',
  kLongGet = 'j',
  kStop = '.',
};

// A list, bytes, or a mark between values.
struct Value {
  enum class Kind { kMark, kBytes, kList };
  Kind kind = Kind::kMark;
  ByteRange bytes = {};
  std::shared_ptr<std::vector<Value>> items = nullptr;
};

class Reader {
 public:
  Reader(const FileView& file, ByteRange range) : file_(file), range_(range) {}

  absl::StatusOr<PickledList> Read() {
    // An object takes an opcode and a place in the memo; a list a few more.
    constexpr size_t kMaxOpcodes = size_t{16} * kMaxImages;
    for (size_t i = 0; i < kMaxOpcodes; ++i) {
      begin_ = at_;
      BALLAST_ASSIGN_OR_RETURN(const uint64_t opcode, Number(1));
      if (opcode == kStop) return Finish();
      BALLAST_RETURN_IF_ERROR(Run(static_cast<uint8_t>(opcode)));
    }
    return Fault("over ", kMaxOpcodes, " opcodes");
  }

 private:
  template <typename... Piece>
  absl::Status Fault(const Piece&... pieces) const {
    return DataFaultError(absl::StrCat(
        "pickle: at byte ", begin_, " ", pieces...,
        "; wanted lists of bytes alone, since nothing in it is run: pickle a "
        "list of the images' files with protocol 3 or more"));
  }

  // The next bytes, at most 8, as a number.
  absl::StatusOr<uint64_t> Number(uint64_t bytes) {
    if (bytes > range_.size - at_) return Fault("it ends");
    if (at_ < window_begin_ || at_ + bytes > window_begin_ + window_.size()) {
      // Enough for what is between two objects.
      constexpr uint64_t kWindow = 64;
      window_begin_ = at_;
      BALLAST_ASSIGN_OR_RETURN(
          window_, file_.ReadAt(range_.offset + at_,
                                std::min(kWindow, range_.size - at_)));
    }
    uint64_t number = 0;
    for (uint64_t i = 0; i < bytes; ++i) {
      const auto byte = static_cast<uint8_t>(window_[at_ - window_begin_ + i]);
      number |= uint64_t{byte} << (8 * i);
    }
    at_ += bytes;
    return number;
  }

  absl::Status Run(uint8_t opcode) {
    switch (opcode) {
      case kProtocol:
        return Number(1).status();
      case kFrame:
        return Number(8).status();
      case kMark:
        stack_.push_back({});
        return absl::OkStatus();
      case kEmptyList:
        stack_.push_back({Value::Kind::kList, {}, MakeList()});
        return absl::OkStatus();
      case kShortBytes:
        return AddBytes(1);
      case kBytes:
        return AddBytes(4);
      case kBytes8:
        return AddBytes(8);
      case kAppend:
        return Append(stack_.empty() ? 0 : stack_.size() - 1);
      case kAppends: {
        size_t mark = stack_.size();
        while (mark > 0 && stack_[mark - 1].kind != Value::Kind::kMark) --mark;
        if (mark == 0) return Fault("items without a mark");
        stack_.erase(stack_.begin() + mark - 1);
        return Append(mark - 1);
      }
      case kMemoize:
        return Put(memo_.size());
      case kPut:
      case kLongPut: {
        BALLAST_ASSIGN_OR_RETURN(const uint64_t key,
                                 Number(opcode == kPut ? 1 : 4));
        return Put(key);
      }
      case kGet:
      case kLongGet: {
        BALLAST_ASSIGN_OR_RETURN(const uint64_t key,
                                 Number(opcode == kGet ? 1 : 4));
        const auto found = memo_.find(key);
        if (found == memo_.end() || found->second.kind != Value::Kind::kBytes) {
          return Fault("a list that is in it twice, or nothing");
        }
        return Push(found->second);
      }
      default:
        return Fault(absl::StrFormat("opcode 0x%02x", opcode));
    }
  }

  static std::shared_ptr<std::vector<Value>> MakeList() {
    return std::make_shared<std::vector<Value>>();
  }

  absl::Status AddBytes(uint64_t length) {
    BALLAST_ASSIGN_OR_RETURN(const uint64_t size, Number(length));
    if (size > range_.size - at_) return Fault("it ends within bytes");
    const Value value = {Value::Kind::kBytes, {range_.offset + at_, size}};
    at_ += size;
    return Push(value);
  }

  absl::Status Push(const Value& bytes) {
    if (++objects_ > kMaxImages) return Fault("over ", kMaxImages, " objects");
    stack_.push_back(bytes);
    return absl::OkStatus();
  }

  absl::Status Put(uint64_t key) {
    if (stack_.empty()) return Fault("nothing to remember");
    memo_[key] = stack_.back();
    return absl::OkStatus();
  }

  // Moves the values from `first` on to the list before them.
  absl::Status Append(size_t first) {
    if (first == 0 || stack_[first - 1].kind != Value::Kind::kList) {
      return Fault("items of no list");
    }
    std::vector<Value>& list = *stack_[first - 1].items;
    for (size_t i = first; i < stack_.size(); ++i) {
      if (stack_[i].kind == Value::Kind::kMark ||
          stack_[i].items == stack_[first - 1].items) {
        return Fault("a mark, or a list within itself");
      }
      // Refused here and not in the end: what holds lists frees them in as
      // many calls within calls as they are deep.
      if (HasLists(stack_[i])) return Fault("lists in lists of lists");
      list.push_back(std::move(stack_[i]));
    }
    stack_.resize(first);
    return absl::OkStatus();
  }

  static bool HasLists(const Value& value) {
    return value.items != nullptr &&
           std::any_of(value.items->begin(), value.items->end(),
                       [](const Value& item) { return item.items != nullptr; });
  }

  absl::StatusOr<PickledList> Finish() const {
    if (stack_.size() != 1 || stack_[0].kind != Value::Kind::kList) {
      return Fault("no list");
    }
    PickledList result;
    const std::vector<Value>& list = *stack_[0].items;
    result.has_lists = !list.empty() && list[0].items != nullptr;
    for (const Value& value : list) {
      if ((value.items != nullptr) != result.has_lists) {
        return Fault("lists beside bytes");
      }
      std::vector<ByteRange>& item = result.items.emplace_back();
      if (!result.has_lists) {
        item.push_back(value.bytes);
        continue;
      }
      for (const Value& inner : *value.items) item.push_back(inner.bytes);
    }
    return result;
  }

  const FileView& file_;
  const ByteRange range_;
  uint64_t at_ = 0;     // of the next byte, in the range
  uint64_t begin_ = 0;  // of the opcode
  uint64_t window_begin_ = 0;
  std::string window_;
  std::vector<Value> stack_;
  absl::flat_hash_map<uint64_t, Value> memo_;
  uint32_t objects_ = 0;
};

}  // namespace

absl::StatusOr<PickledList> ReadPickledList(const FileView& file,
                                            ByteRange range) {
  return Reader(file, range).Read();
}

}  // namespace ballast
