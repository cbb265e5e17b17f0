#include "trainer_shim/host/peer_header.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

// "12 bytes in 2 slices".
std::string Text(const SliceSizes& sizes) {
  return absl::StrCat(sizes.bytes, " bytes in ", sizes.slices, " slices");
}

absl::Status CheckSizes(uint32_t from, uint32_t to, const SliceSizes& sent,
                        const SliceSizes& expected) {
  if (sent == expected) return absl::OkStatus();
  const bool only_order =
      sent.bytes == expected.bytes && sent.slices == expected.slices;
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", from, " sends ", Text(sent), " to rank ", to, ", which expects ",
      Text(expected), only_order ? " of other lengths" : "",
      "; the two follow different schedules or steps"));
}

}  // namespace

void SliceSizes::Add(uint64_t slice_bytes) {
  if (slice_bytes == 0) return;
  ++slices;
  bytes += slice_bytes;
  // FNV-1a, a length at a time.
  hash = (hash ^ slice_bytes) * 0x100000001b3;
}

std::vector<PeerHeader> HeadersOf(uint64_t run, uint64_t number, uint32_t from,
                                  uint32_t size,
                                  absl::Span<const SendSlice> sends,
                                  absl::Span<const ReceiveSlice> receives) {
  std::vector<PeerHeader> headers(size);
  for (uint32_t to = 0; to < size; ++to) {
    headers[to].magic = PeerHeader::kMagic;
    headers[to].run = run;
    headers[to].number = number;
    headers[to].from = from;
    headers[to].to = to;
  }
  for (const SendSlice& slice : sends) {
    headers[slice.peer].sends.Add(slice.bytes.size());
  }
  for (const ReceiveSlice& slice : receives) {
    headers[slice.peer].receives.Add(slice.bytes.size());
  }
  return headers;
}

absl::Status CheckHeader(const PeerHeader& got, const PeerHeader& sent) {
  if (got.magic != PeerHeader::kMagic || got.run != sent.run ||
      got.from != sent.to || got.to != sent.from) {
    return absl::FailedPreconditionError(absl::StrCat(
        "what answers rank ", sent.from, " in place of rank ", sent.to,
        " is not that rank of this run: another start of the job or another "
        "program uses its port; start all ranks again"));
  }
  if (got.number != sent.number) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", got.from, " is at exchange ", got.number,
                     " and rank ", sent.from, " at exchange ", sent.number,
                     "; the two follow different schedules or steps"));
  }
  const absl::Status to_me =
      CheckSizes(got.from, got.to, got.sends, sent.receives);
  if (!to_me.ok()) return to_me;
  return CheckSizes(sent.from, sent.to, sent.sends, got.receives);
}

}  // namespace ballast
