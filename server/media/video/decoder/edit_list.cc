#include "server/media/video/decoder/edit_list.h"

#include <string.h>

#include <algorithm>
#include <cmath>

namespace ballast::video_decoder {
namespace {

constexpr int kMaxBoxes = 1 << 16;
constexpr uint64_t kMaxEdits = 1 << 16;

// Bytes [begin, end) of a box without its head.
struct Body {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Calls `visit(box, body)` for each box within `of`.
template <typename Visit>
void ForEachBox(MediaInput* input, const Body& of, const Visit& visit) {
  uint64_t at = of.begin;
  for (int boxes = 0; boxes < kMaxBoxes && at + 8 <= of.end; ++boxes) {
    uint8_t head[16] = {};
    if (input->Peek(static_cast<int64_t>(at), sizeof(head), head) < 8) return;
    const Mp4Box box(head);
    const uint64_t bytes = box.length == 0 ? of.end - at : box.length;
    const uint64_t head_bytes = ReadNumber(head, 4) == 1 ? 16 : 8;
    if (bytes < head_bytes || bytes > of.end - at) return;
    visit(box, Body{at + head_bytes, at + bytes});
    at += bytes;
  }
}

// The number in `bytes` bytes at `at` of a body; 0 beyond its end.
uint64_t GetNumber(MediaInput* input, const Body& body, uint64_t at,
                   int bytes) {
  uint8_t found[8] = {};
  if (at + bytes > body.end - body.begin) return 0;
  input->Peek(static_cast<int64_t>(body.begin + at), bytes, found);
  return ReadNumber(found, bytes);
}

// A version, flags and two times of 4 or 8 bytes come before the number.
uint64_t GetAfterTimes(MediaInput* input, const Body& body) {
  const bool is_long = GetNumber(input, body, 0, 1) == 1;
  return GetNumber(input, body, is_long ? 20 : 12, 4);
}

std::vector<Edit> ReadEdits(MediaInput* input, const Body& body) {
  const bool is_long = GetNumber(input, body, 0, 1) == 1;
  const int bytes = is_long ? 8 : 4;
  const uint64_t size = 2 * bytes + 4;
  const uint64_t count = std::min(
      {GetNumber(input, body, 4, 4), kMaxEdits,
       (body.end - body.begin - std::min<uint64_t>(8, body.end - body.begin)) /
           size});
  std::vector<Edit> edits;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = 8 + i * size;
    Edit edit;
    edit.duration = GetNumber(input, body, at, bytes);
    const uint64_t time = GetNumber(input, body, at + bytes, bytes);
    edit.media_time =
        is_long ? static_cast<int64_t>(time) : static_cast<int32_t>(time);
    edit.is_plain = GetNumber(input, body, at + 2 * bytes, 4) == 1 << 16;
    edits.push_back(edit);
  }
  return edits;
}

}  // namespace

EditList ReadEditList(MediaInput* input, int track) {
  EditList list;
  const auto in_track = [&](const Body& trak) {
    uint64_t id = 0;
    std::vector<Edit> edits;
    ForEachBox(input, trak, [&](const Mp4Box& box, const Body& body) {
      if (box.Is("tkhd")) id = GetAfterTimes(input, body);
      if (!box.Is("edts")) return;
      ForEachBox(input, body, [&](const Mp4Box& inner, const Body& of) {
        if (inner.Is("elst")) edits = ReadEdits(input, of);
      });
    });
    if (id == static_cast<uint64_t>(track)) list.edits = std::move(edits);
  };
  const auto in_movie = [&](const Mp4Box& box, const Body& body) {
    if (box.Is("mvhd")) {
      list.units_a_second = static_cast<uint32_t>(GetAfterTimes(input, body));
    }
    if (box.Is("trak")) in_track(body);
  };
  ForEachBox(input, {0, input->bytes()},
             [&](const Mp4Box& box, const Body& body) {
               if (box.Is("moov")) ForEachBox(input, body, in_movie);
             });
  if (list.units_a_second == 0) list.edits.clear();
  return list;
}

bool IsPlain(const EditList& list) {
  return std::all_of(
      list.edits.begin(), list.edits.end(),
      [](const Edit& edit) { return edit.media_time < 0 || edit.is_plain; });
}

bool GetStretches(const EditList& list, double unit, uint32_t rate,
                  int64_t samples, std::vector<Stretch>* stretches,
                  std::string* reason) {
  if (!IsPlain(list)) {
    *reason = "its edit list plays audio at another speed";
    return false;
  }
  const double movie_unit = static_cast<double>(rate) / list.units_a_second;
  // Numbers of samples are compared as float64, which no header overflows.
  const double near = movie_unit + 1;
  double silence = 0;
  for (size_t i = 0; i < list.edits.size(); ++i) {
    const Edit& edit = list.edits[i];
    const double length =
        std::round(static_cast<double>(edit.duration) * movie_unit);
    if (edit.media_time < 0) {
      silence += length;
      continue;
    }
    const double from = std::round(static_cast<double>(edit.media_time) * unit);
    const auto end = static_cast<double>(samples);
    double to = from + length;
    const bool is_last = i + 1 == list.edits.size();
    const bool is_open =
        edit.duration == 0 || (samples == kToTheEnd && is_last);
    if (is_open || to > end - near) to = end;
    if (!(from < to)) continue;
    if (!stretches->empty()) {
      Stretch& last = stretches->back();
      // Of edits that adjoin, both ends are rounded.
      if (from < static_cast<double>(last.to) &&
          static_cast<double>(last.to) - from <= near) {
        last.to = static_cast<int64_t>(from);
      }
      if (from < static_cast<double>(last.to)) {
        *reason = "its edit list plays audio twice, or not in its order";
        return false;
      }
      if (silence > 0) {
        const auto at = static_cast<int64_t>(from);
        stretches->push_back(
            {at, at + static_cast<int64_t>(std::min(silence, 1e12)), true});
      }
    }
    silence = 0;
    stretches->push_back(
        {static_cast<int64_t>(from),
         is_open || to >= end ? samples : static_cast<int64_t>(to)});
  }
  if (!stretches->empty()) return true;
  *reason = "its edit list plays no audio";
  return false;
}

}  // namespace ballast::video_decoder
