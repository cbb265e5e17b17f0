// The program that runs FFmpeg's libraries; decoder_protocol.h has its purpose
// and its requests. One thread, one request at a time; between two requests it
// keeps the packets of a video whose facts were asked for.

extern "C" {
#include <libavutil/mem.h>
}

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/helper_program.h"
#include "server/media/video/decoder/decoder_protocol.h"
#include "server/media/video/decoder/frame_decoder.h"
#include "server/media/video/decoder/media_input.h"
#include "server/media/video/decoder/packet_scan.h"
#include "server/media/video/frame_table.h"

namespace ballast::video_decoder {
namespace {

// The processor time of a request, after which the kernel ends the process; 0:
// no limit. FrameDecoder limits the time of a packet.
void LimitTime(uint32_t seconds) {
  itimerval limit = {};
  limit.it_value.tv_sec = seconds;
  setitimer(ITIMER_VIRTUAL, &limit, nullptr);
  LimitProcessorTime(seconds == 0 ? 0 : kPacketSeconds);
}

struct CloseFd {
  ~CloseFd() {
    if (fd >= 0) close(fd);
  }
  int fd = -1;
};

bool Answer(Outcome outcome, const std::string& body) {
  return WriteAnswer(static_cast<uint32_t>(outcome), body);
}

bool SendFault(const Fault& fault) {
  if (fault.outcome == Outcome::kNoMemory) ExitForMemory(kLargestAllocation);
  return Answer(fault.outcome, fault.reason.substr(0, kMaxReasonBytes));
}

std::string Cut(std::string name) {
  name.resize(std::min<size_t>(name.size(), kMaxFileNameBytes));
  return name;
}

template <class T>
void Append(const T& value, std::string* to) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// The packets of a video, in the order of decoding and as frames.
struct Listing {
  PacketList list;
  FrameTable table;
};

bool List(MediaInput* input, Listing* listing, Fault* fault) {
  if (!ListPackets(input, &listing->list, fault)) return false;
  listing->table = OrderFrames(listing->list.packets);
  return true;
}

// Where a container has lost bytes, the frames around are decoded: an index
// takes what a server can deliver.
bool CheckDamage(int file, const Request& request, const Listing& listing,
                 Fault* fault) {
  const std::vector<uint32_t>& damaged = listing.list.damaged;
  if (damaged.empty()) return true;
  // A demuxer notices a loss at the packet before or behind it: to the end of
  // the next group.
  const std::vector<VideoPacket>& packets = listing.list.packets;
  std::vector<bool> is_near(packets.size());
  int groups = 2;  // begun since the last loss
  auto next = damaged.begin();
  for (uint32_t i = 0; i < packets.size(); ++i) {
    if (next != damaged.end() && *next == i) {
      groups = 0;
      ++next;
    } else if (packets[i].is_key) {
      groups = std::min(groups + 1, 2);
    }
    is_near[i] = groups < 2;
  }
  std::vector<uint32_t> unsure;
  for (uint32_t i = 0; i < listing.table.frames.size(); ++i) {
    if (is_near[listing.table.frames[i].packet]) unsure.push_back(i);
  }
  if (unsure.empty()) return true;
  FrameDecoder decoder(file, request.offset, request.bytes, listing.list,
                       listing.table);
  if (decoder.Decode(
          unsure, [](const AVFrame&, uint32_t) { return true; }, fault)) {
    return true;
  }
  if (fault->outcome == Outcome::kRefused) {
    fault->reason = "bytes are missing at packet " +
                    std::to_string(damaged.front()) + ": " + fault->reason;
  }
  return false;
}

// Without times of all frames a rate is all that is known: it must not say more
// frames than there are between those that have one.
bool CheckRate(const Listing& listing, const AVStream& stream, Fault* fault) {
  if (listing.table.is_timed) return true;
  int64_t first = INT64_MAX;
  int64_t last = INT64_MIN;
  for (const VideoPacket& packet : listing.list.packets) {
    if (!packet.is_shown || packet.time == kNoTime) continue;
    first = std::min(first, packet.time);
    last = std::max(last, packet.time);
  }
  const double rate = av_q2d(stream.avg_frame_rate);
  if (last <= first || !(rate > 0)) return true;
  const double seconds =
      static_cast<double>(last - first) * av_q2d(stream.time_base);
  const auto frames = static_cast<double>(listing.table.frames.size());
  constexpr double kTolerance = 0.1;
  if (seconds * rate <= (1 + kTolerance) * frames + 2) return true;
  *fault = {Outcome::kRefused,
            std::to_string(listing.table.frames.size()) + " frames in " +
                std::to_string(seconds) +
                " s, some of them without a time; "
                "wanted " +
                std::to_string(rate) +
                " a second as the header says, or times of all: ffmpeg -i "
                "FILE OUT.mp4"};
  return false;
}

// A file may begin within a group of pictures: whether its first frames can be
// decoded all the same shows only by decoding them.
bool CheckBeginning(int file, const Request& request, const Listing& listing,
                    Fault* fault) {
  constexpr uint32_t kFrames = 8;
  const FrameTable& table = listing.table;
  std::vector<uint32_t> unsure;
  for (uint32_t i = 0; i < std::min<size_t>(kFrames, table.frames.size());
       ++i) {
    const VideoPacket& start = listing.list.packets[table.frames[i].start];
    const bool is_sure =
        start.is_key && (!table.is_timed || start.time <= table.frames[i].time);
    if (!is_sure) unsure.push_back(i);
  }
  // Without times frames are counted as they come out: of a file that begins
  // within a group fewer may, which its last frame shows.
  const auto last = static_cast<uint32_t>(table.frames.size() - 1);
  if (!table.is_timed && !unsure.empty() && unsure.back() < last) {
    unsure.push_back(last);
  }
  if (unsure.empty()) return true;
  FrameDecoder decoder(file, request.offset, request.bytes, listing.list,
                       table);
  if (decoder.Decode(
          unsure, [](const AVFrame&, uint32_t) { return true; }, fault)) {
    return true;
  }
  if (fault->outcome == Outcome::kRefused) {
    fault->reason =
        "the video begins within a group of pictures: " + fault->reason +
        "; cut it where a key frame begins";
  }
  return false;
}

bool AnswerFacts(int file, const Request& request, Listing* listing,
                 Fault* fault) {
  const auto input =
      MediaInput::Open(file, request.offset, request.bytes, kVideo, fault);
  if (input == nullptr) return false;
  const AVStream& stream = *input->stream();
  const AVCodecParameters& codec = *stream.codecpar;
  FactsHead head = {};
  if (!ReadRotation(&stream, &head.rotation, fault)) return false;
  if (OpenDecoder(stream, fault) == nullptr) return false;
  std::string scan = input->ReasonToScan();
  if (!List(input.get(), listing, fault)) return false;
  const FrameTable& table = listing->table;
  if (table.frames.empty()) {
    *fault = GetFault(AVERROR_INVALIDDATA, "the video has no frame");
    return false;
  }
  if (codec.width <= 0 || codec.height <= 0) {
    *fault = GetFault(AVERROR_INVALIDDATA, "the video has no size");
    return false;
  }
  if (!CheckRate(*listing, stream, fault) ||
      !CheckBeginning(file, request, *listing, fault) ||
      !CheckDamage(file, request, *listing, fault)) {
    return false;
  }
  if (!table.is_timed) {
    if (!scan.empty()) scan += "; ";
    scan += "frames without times: decoding gives their order";
  }
  const std::string container = Cut(input->format()->iformat->name);
  const std::string name = Cut(avcodec_get_name(codec.codec_id));
  scan = Cut(scan);
  head.container_bytes = static_cast<uint32_t>(container.size());
  head.codec_bytes = static_cast<uint32_t>(name.size());
  head.scan_bytes = static_cast<uint32_t>(scan.size());
  head.frames = static_cast<uint32_t>(table.frames.size());
  head.width = static_cast<uint32_t>(codec.width);
  head.height = static_cast<uint32_t>(codec.height);
  head.is_timed = table.is_timed ? 1 : 0;
  head.unit_numerator = stream.time_base.num;
  head.unit_denominator = stream.time_base.den;
  head.rate_numerator = stream.avg_frame_rate.num;
  head.rate_denominator = std::max(1, stream.avg_frame_rate.den);
  head.seconds = stream.duration != AV_NOPTS_VALUE
                     ? stream.duration * av_q2d(stream.time_base)
                 : input->format()->duration != AV_NOPTS_VALUE
                     ? input->format()->duration / double{AV_TIME_BASE}
                     : 0;
  head.end = listing->list.end;
  head.bytes_read = input->bytes_read();
  std::string answer;
  answer.reserve(sizeof(head) + 3 * kMaxFileNameBytes +
                 table.frames.size() * sizeof(FactsFrame));
  Append(head, &answer);
  answer += container + name + scan;
  for (const VideoFrame& frame : table.frames) {
    Append(FactsFrame{frame.time, frame.packet, frame.start}, &answer);
  }
  return Answer(Outcome::kOk, answer);
}

// Writes frames to the slots in turn.
class SlotWriter {
 public:
  SlotWriter(const Request& request, uint8_t* slots, Fault* fault)
      : request_(request), slots_(slots), fault_(fault) {}

  bool Write(const AVFrame& frame, uint32_t place) {
    if (frame.width != static_cast<int>(request_.width) ||
        frame.height != static_cast<int>(request_.height)) {
      *fault_ = {Outcome::kRefused,
                 "a frame is " + std::to_string(frame.width) + "x" +
                     std::to_string(frame.height) + " pixels, the video " +
                     std::to_string(request_.width) + "x" +
                     std::to_string(request_.height)};
      return false;
    }
    if (written_ >= request_.slots && !AwaitTaken()) return false;
    uint8_t* const rows =
        slots_ + written_ % request_.slots * request_.slot_bytes;
    if (!converter_.Convert(frame, rows, request_.stride, fault_)) return false;
    ++written_;
    const HelperBytes number = {&place, sizeof(place)};
    return WriteAnswer(static_cast<uint32_t>(Outcome::kOk), &number, 1);
  }

  // Waits until the server has taken all frames.
  bool Finish() {
    while (taken_ < written_) {
      if (!AwaitTaken()) return false;
    }
    return true;
  }

 private:
  bool AwaitTaken() {
    uint32_t kind;
    std::string body;
    ++taken_;
    return ReadRequest(&kind, &body);
  }

  const Request& request_;
  uint8_t* const slots_;
  Fault* const fault_;
  RgbConverter converter_;
  uint64_t written_ = 0;
  uint64_t taken_ = 0;
};

// `known`: the listing of the request before; null without one.
bool AnswerDecode(int file, int memory, const Request& request,
                  const std::vector<uint32_t>& wanted, Listing* known,
                  Fault* fault) {
  Listing own;
  if (known == nullptr) {
    const auto input =
        MediaInput::Open(file, request.offset, request.bytes, kVideo, fault);
    if (input == nullptr || !List(input.get(), &own, fault)) return false;
    known = &own;
  }
  const FrameTable& table = known->table;
  if (table.frames.size() != request.total_frames) {
    *fault = {Outcome::kRefused,
              "the video has " + std::to_string(table.frames.size()) +
                  " frames, not " + std::to_string(request.total_frames) +
                  " as when it was planned"};
    return false;
  }
  const size_t bytes = request.slots * request.slot_bytes;
  void* const slots =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (slots == MAP_FAILED) {
    *fault = {Outcome::kNoMemory, strerror(errno)};
    return false;
  }
  SlotWriter writer(request, static_cast<uint8_t*>(slots), fault);
  FrameDecoder decoder(file, request.offset, request.bytes, known->list, table);
  const bool is_decoded = decoder.Decode(
      wanted,
      [&](const AVFrame& frame, uint32_t place) {
        return writer.Write(frame, place);
      },
      fault);
  // Also after a fault: what is left would be taken for a request.
  const bool is_finished = writer.Finish();
  munmap(slots, bytes);
  return is_decoded && is_finished;
}

// Returns false at the end of the stream. `kept` is the listing of the previous
// request, if that was of facts, and becomes this request's.
bool AnswerNext(std::unique_ptr<Listing>* kept) {
  uint32_t task = 0;
  std::string body;
  int fds[2] = {-1, -1};
  size_t count = 0;
  const bool is_read = ReadRequest(&task, &body, fds, 2, &count);
  const CloseFd file = {fds[0]};
  const CloseFd memory = {fds[1]};
  Request request;
  if (!is_read || count == 0 || body.size() < sizeof(request)) return false;
  memcpy(&request, body.data(), sizeof(request));
  std::vector<uint32_t> wanted((body.size() - sizeof(request)) /
                               sizeof(uint32_t));
  // Of facts there are none, and memcpy wants no null.
  if (!wanted.empty()) {
    memcpy(wanted.data(), body.data() + sizeof(request),
           wanted.size() * sizeof(uint32_t));
  }
  LimitTime(request.cpu_seconds);
  Fault fault;
  bool done = false;
  std::unique_ptr<Listing> before = std::move(*kept);
  if (task == kFacts) {
    before.reset();
    auto listing = std::make_unique<Listing>();
    done = AnswerFacts(file.fd, request, listing.get(), &fault);
    if (done) *kept = std::move(listing);
  } else {
    done =
        AnswerDecode(file.fd, memory.fd, request, wanted,
                     request.is_listed != 0 ? before.get() : nullptr, &fault);
  }
  LimitTime(0);
  if (done) return true;
  // Without a fault the socket is gone.
  return fault.outcome != Outcome::kOk && SendFault(fault);
}

int Run() {
  RequireBuiltVersion();
  EnterBox({.memory = kMaxMemory});
  av_max_alloc(kLargestAllocation);
  KeepLastError();
  std::unique_ptr<Listing> kept;
  while (AnswerNext(&kept)) {
  }
  return 0;
}

}  // namespace
}  // namespace ballast::video_decoder

int main() { return ballast::video_decoder::Run(); }
