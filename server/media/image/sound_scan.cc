#include "server/media/image/sound_scan.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "proto/image/engine_jpeg.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

constexpr int kCoefficients = 64;
constexpr int kMaxDcBits = 11;  // of a difference
constexpr int kMaxAcBits = 10;
// The cosine transform of 8-bit samples is within +-1024; rounding to a step of
// quantisation adds less than the step.
constexpr int kMaxValue = 1024;

absl::Status Unsound(absl::string_view fault) {
  return DataFaultError(absl::StrCat("JPEG: ", fault));
}

uint32_t Byte(absl::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

// A Huffman table. Codes of up to kLookBits are found at once.
class HuffmanTable {
 public:
  static constexpr int kLookBits = 9;
  static constexpr int kMaxBits = 16;
  struct Code {
    uint8_t symbol = 0;
    uint8_t bits = 0;  // 0: no such code
  };

  // `counts`: 16 bytes, the number of codes of each length. `symbols` has as
  // many bytes as all counts together. False if the codes do not fit in their
  // lengths or leave no code unused (the all-ones code must be unused), or if a
  // symbol does not belong to the table's class.
  bool Build(absl::string_view counts, absl::string_view symbols, bool dc) {
    symbols_ = symbols;
    look_ = {};
    uint32_t code = 0;
    size_t next = 0;
    for (int bits = 1; bits <= kMaxBits; ++bits) {
      code <<= 1;
      const uint32_t count = Byte(counts, bits - 1);
      // The index of the first code's symbol, minus the code.
      offset_[bits] = static_cast<int32_t>(next) - static_cast<int32_t>(code);
      for (uint32_t i = 0; i < count; ++i, ++code, ++next) {
        if (code + 1 >= uint32_t{1} << bits) return false;
        const uint32_t symbol = Byte(symbols, next);
        if (dc ? symbol > kMaxDcBits : !IsOfAc(symbol)) return false;
        if (bits <= kLookBits) Fill(code, bits, static_cast<uint8_t>(symbol));
      }
      limit_[bits] = code << (kMaxBits - bits);
    }
    return true;
  }

  // The code that `window`, the next 16 bits, begins with.
  Code Find(uint32_t window) const {
    const Code found = look_[window >> (kMaxBits - kLookBits)];
    if (found.bits != 0) return found;
    for (int bits = kLookBits + 1; bits <= kMaxBits; ++bits) {
      if (window >= limit_[bits]) continue;
      const int32_t code = static_cast<int32_t>(window >> (kMaxBits - bits));
      return {static_cast<uint8_t>(symbols_[code + offset_[bits]]),
              static_cast<uint8_t>(bits)};
    }
    return {};
  }

 private:
  // Whether the symbol is valid for AC: a run of 0 to 15 zeros and a value of 1
  // to 10 bits, sixteen zeros, or the end of the block.
  static bool IsOfAc(uint32_t symbol) {
    const uint32_t bits = symbol & 15;
    return bits == 0 ? symbol == 0 || symbol == 0xf0 : bits <= kMaxAcBits;
  }

  void Fill(uint32_t code, int bits, uint8_t symbol) {
    const int more = kLookBits - bits;
    for (uint32_t i = 0; i < uint32_t{1} << more; ++i) {
      look_[(code << more) + i] = {symbol, static_cast<uint8_t>(bits)};
    }
  }

  std::array<Code, 1 << kLookBits> look_ = {};
  std::array<uint32_t, kMaxBits + 1> limit_ = {};
  std::array<int32_t, kMaxBits + 1> offset_ = {};
  absl::string_view symbols_;
};

// Reads the bits of a scan up to its next marker.
class BitReader {
 public:
  BitReader(absl::string_view bytes, size_t at) : bytes_(bytes), at_(at) {}

  // The next 16 bits; past the end they are ones.
  uint32_t Window() {
    if (count_ < 16) Fill();
    return static_cast<uint32_t>(bits_ >> (count_ - 16)) & 0xffff;
  }
  // At most as many as Window has shown.
  void Take(int bits) { count_ -= bits; }
  // A value of `bits` bits, 1 to 11, as JPEG codes it.
  int Value(int bits) {
    const int value = static_cast<int>(Window() >> (16 - bits));
    Take(bits);
    return value < 1 << (bits - 1) ? value - (1 << bits) + 1 : value;
  }
  // Whether more bits were taken than there are.
  bool overrun() const { return count_ < padding_; }
  // The offset of the marker after the bits, of which less than a byte may be
  // left; 0 if more is left.
  size_t End() {
    Window();
    return ended_ && count_ - padding_ < 8 ? at_ : 0;
  }

 private:
  void Fill() {
    while (count_ <= 48) {
      uint32_t byte = 0xff;
      if (!ended_ && at_ < bytes_.size()) {
        byte = Byte(bytes_, at_);
        const bool marker = byte == 0xff && (at_ + 1 == bytes_.size() ||
                                             Byte(bytes_, at_ + 1) != 0);
        if (marker) {
          ended_ = true;
        } else {
          at_ += byte == 0xff ? 2 : 1;
        }
      } else {
        ended_ = true;
      }
      if (ended_) {
        byte = 0xff;
        padding_ += 8;
      }
      bits_ = bits_ << 8 | byte;
      count_ += 8;
    }
  }

  const absl::string_view bytes_;
  size_t at_;          // of the next byte
  uint64_t bits_ = 0;  // the low `count_` bits are to come
  int count_ = 0;
  int padding_ = 0;  // of these, padding at the end that is not in the file
  bool ended_ = false;
};

struct Component {
  int blocks = 1;  // of an MCU
  std::array<uint8_t, kCoefficients> steps = {};
  const HuffmanTable* dc = nullptr;
  const HuffmanTable* ac = nullptr;
  int last_dc = 0;
};

class ScanChecker {
 public:
  explicit ScanChecker(absl::string_view jpeg) : jpeg_(jpeg) {}

  absl::Status Check(const PlaneForm& form) {
    BALLAST_RETURN_IF_ERROR(ReadHeader());
    const uint32_t across = form.sampling == ChromaSampling::kGrey ||
                                    form.sampling == ChromaSampling::k444
                                ? 8
                                : 16;
    const uint32_t down = form.sampling == ChromaSampling::k420 ? 16 : 8;
    const uint64_t mcus = uint64_t{(form.width + across - 1) / across} *
                          ((form.height + down - 1) / down);
    const uint64_t interval = interval_ == 0 ? mcus : interval_;
    uint32_t restart = 0;
    for (uint64_t mcu = 0; mcu < mcus; restart = (restart + 1) % 8) {
      BitReader bits(jpeg_, at_);
      for (Component& component : components_) component.last_dc = 0;
      const uint64_t end = std::min(mcus, mcu + interval);
      for (; mcu < end; ++mcu) {
        const char* const fault = ReadMcu(&bits);
        if (fault != nullptr) {
          return Unsound(absl::StrCat("MCU ", mcu, " of ", mcus, ": ", fault));
        }
      }
      at_ = bits.End();
      const uint32_t wanted = end == mcus ? 0xd9 : 0xd0 + restart;
      if (at_ == 0 || jpeg_.size() - at_ < 2 ||
          Byte(jpeg_, at_ + 1) != wanted) {
        return Unsound(absl::StrCat("no marker 0x", absl::Hex(wanted),
                                    " after MCU ", end, " of ", mcus));
      }
      at_ += 2;
    }
    if (at_ != jpeg_.size()) {
      return Unsound(
          absl::StrCat(jpeg_.size() - at_, " bytes after the end marker"));
    }
    return absl::OkStatus();
  }

 private:
  // Collects tables. JudgeForEngines has checked the lengths of everything.
  absl::Status ReadHeader() {
    std::array<uint32_t, 3> quantisation = {};
    at_ = 2;
    while (true) {
      const uint32_t marker = Byte(jpeg_, at_ + 1);
      const size_t length = Byte(jpeg_, at_ + 2) << 8 | Byte(jpeg_, at_ + 3);
      absl::string_view payload = jpeg_.substr(at_ + 4, length - 2);
      at_ += 2 + length;
      switch (marker) {
        case 0xc0:
          count_ = Byte(payload, 5);
          for (size_t i = 0; i < count_; ++i) {
            const uint32_t sampling = Byte(payload, 7 + 3 * i);
            components_[i].blocks =
                static_cast<int>((sampling >> 4) * (sampling & 15));
            quantisation[i] = Byte(payload, 8 + 3 * i);
          }
          break;
        case 0xc4:
          BALLAST_RETURN_IF_ERROR(ReadHuffman(payload));
          break;
        case 0xdb:
          for (; !payload.empty(); payload.remove_prefix(1 + kCoefficients)) {
            steps_[Byte(payload, 0)] = payload.substr(1, kCoefficients);
          }
          break;
        case 0xdd:
          interval_ = Byte(payload, 0) << 8 | Byte(payload, 1);
          break;
        case 0xda:
          for (size_t i = 0; i < count_; ++i) {
            const uint32_t tables = Byte(payload, 2 + 2 * i);
            components_[i].dc = &huffman_[0][tables >> 4];
            components_[i].ac = &huffman_[1][tables & 1];
            const absl::string_view steps = steps_[quantisation[i]];
            for (int k = 0; k < kCoefficients; ++k) {
              components_[i].steps[k] = static_cast<uint8_t>(steps[k]);
            }
          }
          return absl::OkStatus();
      }
    }
  }

  absl::Status ReadHuffman(absl::string_view payload) {
    while (!payload.empty()) {
      const uint32_t table = Byte(payload, 0);
      const absl::string_view counts = payload.substr(1, 16);
      size_t codes = 0;
      for (size_t i = 0; i < 16; ++i) codes += Byte(counts, i);
      const bool dc = table >> 4 == 0;
      if (!huffman_[dc ? 0 : 1][table & 1].Build(
              counts, payload.substr(17, codes), dc)) {
        return Unsound("a Huffman table is not valid");
      }
      payload.remove_prefix(17 + codes);
    }
    return absl::OkStatus();
  }

  // The functions below return null, or a description of the fault.

  const char* ReadMcu(BitReader* bits) {
    for (size_t i = 0; i < count_; ++i) {
      for (int block = 0; block < components_[i].blocks; ++block) {
        const char* const fault = ReadBlock(&components_[i], bits);
        if (fault != nullptr) return fault;
      }
    }
    return bits->overrun() ? "the scan ends early" : nullptr;
  }

  static const char* ReadBlock(Component* component, BitReader* bits) {
    constexpr const char* kNoCode = "bits are no Huffman code";
    constexpr const char* kTooLarge =
        "a coefficient is larger than 8-bit samples can give";
    const auto is_large = [&](int value, int k) {
      const int step = component->steps[k];
      return std::abs(value) * step > kMaxValue + step;
    };
    HuffmanTable::Code code = component->dc->Find(bits->Window());
    if (code.bits == 0) return kNoCode;
    bits->Take(code.bits);
    if (code.symbol != 0) component->last_dc += bits->Value(code.symbol);
    if (is_large(component->last_dc, 0)) return kTooLarge;
    for (int k = 1; k < kCoefficients; ++k) {
      code = component->ac->Find(bits->Window());
      if (code.bits == 0) return kNoCode;
      bits->Take(code.bits);
      if (code.symbol == 0) return nullptr;
      k += code.symbol >> 4;
      if (k >= kCoefficients) return "a run passes the end of its block";
      const int size = code.symbol & 15;
      if (size == 0) {
        // Sixteen zeros: more must follow.
        if (k + 1 == kCoefficients) return "a run ends its block";
        continue;
      }
      if (is_large(bits->Value(size), k)) return kTooLarge;
    }
    return nullptr;
  }

  const absl::string_view jpeg_;
  size_t at_ = 0;
  size_t count_ = 0;
  uint64_t interval_ = 0;
  std::array<Component, 3> components_;
  std::array<absl::string_view, 4> steps_;
  std::array<std::array<HuffmanTable, 2>, 2> huffman_;
};

}  // namespace

absl::Status CheckScan(absl::string_view jpeg) {
  const absl::StatusOr<EngineJudgement> judged = JudgeForEngines(jpeg);
  if (!judged.ok()) return Unsound("the header is cut off");
  if (judged->refusal != EngineRefusal::kNone) {
    return Unsound(EngineRefusalText(judged->refusal));
  }
  return ScanChecker(jpeg).Check(judged->form);
}

}  // namespace ballast
