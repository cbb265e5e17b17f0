#include "server/media/video/decoder/frame_decoder.h"

#include <sys/time.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace ballast::video_decoder {
namespace {

// Packets from which on seeking is quicker than reading them.
constexpr uint32_t kWorthSeeking = 64;

// Whether a stream of HEVC has one temporal layer, as its configuration record
// says. In others, a frame that its layer does not refer to may be referred to
// by a higher one.
bool HasOneLayer(const AVCodecParameters& parameters) {
  constexpr int kLayers = 21;  // the byte
  if (parameters.extradata_size <= kLayers || parameters.extradata[0] != 1) {
    return false;
  }
  return (parameters.extradata[kLayers] >> 3 & 7) == 1;
}

}  // namespace

DecoderContext OpenDecoder(const AVStream& stream, Fault* fault) {
  const AVCodecParameters& parameters = *stream.codecpar;
  const AVCodec* const codec = avcodec_find_decoder(parameters.codec_id);
  DecoderContext context(avcodec_alloc_context3(codec));
  if (codec == nullptr || context == nullptr) {
    *fault = {Outcome::kNoMemory, "no memory for a decoder"};
    return nullptr;
  }
  context->thread_count = 1;
  context->max_pixels = static_cast<int64_t>(kMaxFramePixels);
  context->pkt_timebase = stream.time_base;
  int status = avcodec_parameters_to_context(context.get(), &parameters);
  if (status >= 0) status = avcodec_open2(context.get(), codec, nullptr);
  if (status >= 0) return context;
  *fault = GetFault(status, "opening the decoder");
  return nullptr;
}

bool FrameDecoder::Decode(const std::vector<uint32_t>& wanted, const Take& take,
                          Fault* fault) {
  take_ = &take;
  fault_ = fault;
  targets_.clear();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const VideoFrame& frame = table_.frames[wanted[i]];
    targets_.push_back({table_.is_timed ? frame.packet : wanted[i], frame.start,
                        frame.start, static_cast<uint32_t>(i)});
  }
  std::sort(targets_.begin(), targets_.end(),
            [](const Target& a, const Target& b) {
              return std::tie(a.start, a.packet) < std::tie(b.start, b.packet);
            });
  numbers_.clear();
  for (size_t i = 0; i < targets_.size(); ++i) {
    numbers_.emplace(targets_[i].packet, i);
  }
  packet_.reset(av_packet_alloc());
  frame_.reset(av_frame_alloc());
  if (packet_ == nullptr || frame_ == nullptr) {
    *fault = {Outcome::kNoMemory, "no memory for a frame"};
    return false;
  }
  if (!Open() || !DecodeOnce()) return false;
  const auto is_left = [](const Target& t) { return !t.is_done; };
  if (std::none_of(targets_.begin(), targets_.end(), is_left)) return true;
  // A packet may be no beginning, whatever its file says: the first is.
  for (Target& target : targets_) target.start = 0;
  if (!Open() || !DecodeOnce()) return false;
  const auto left = std::find_if(targets_.begin(), targets_.end(), is_left);
  if (left == targets_.end()) return true;
  *fault = {Outcome::kRefused, "frame " + std::to_string(wanted[left->place]) +
                                   " is damaged" +
                                   (damage_.empty() ? "" : ": " + damage_)};
  return false;
}

bool FrameDecoder::Open() {
  input_ = nullptr;
  codec_ = nullptr;
  av_packet_unref(packet_.get());
  is_held_ = false;
  next_ = 0;
  output_ = 0;
  damaged_.clear();
  input_ = MediaInput::Open(fd_, offset_, bytes_, kVideo, fault_);
  if (input_ == nullptr) return false;
  codec_ = OpenDecoder(*input_->stream(), fault_);
  return codec_ != nullptr;
}

bool FrameDecoder::DecodeOnce() {
  size_t i = 0;
  while (true) {
    while (i < targets_.size() && targets_[i].is_done) ++i;
    if (i == targets_.size()) return true;
    const uint32_t start = targets_[i].start;
    const bool is_jump = start > 0;
    if (!MoveTo(start)) return fault_->outcome == Outcome::kOk && !is_ended_;
    uint32_t end = targets_[i].packet;
    while (true) {
      // Targets whose start is in what is decoded anyway.
      while (i < targets_.size() && targets_[i].start <= end + 1) {
        end = std::max(end, targets_[i++].packet);
      }
      // Without times, frames are counted as they come out.
      if (table_.is_timed && next_ > end) break;
      if (!ReadNext()) {
        if (fault_->outcome != Outcome::kOk) return false;
        break;
      }
      const uint32_t number = next_++;
      const bool is_left_out =
          number >= list_.packets.size() || CanLeaveOut(number, is_jump, start);
      packet_->pts = number;  // comes back with the frame
      if (!is_left_out && !Send(packet_.get())) return false;
      av_packet_unref(packet_.get());
    }
    if (!Drain()) return false;
  }
}

bool FrameDecoder::CanLeaveOut(uint32_t number, bool is_jump,
                               uint32_t start) const {
  // Shown before the key packet, these refer to what was skipped.
  return is_jump && table_.is_timed &&
         list_.packets[number].time < list_.packets[start].time;
}

bool FrameDecoder::ReadNext() {
  if (is_held_) {
    is_held_ = false;
    return true;
  }
  return input_->ReadPacket(packet_.get(), fault_);
}

bool FrameDecoder::SkipTo(uint32_t number) {
  while (next_ < number) {
    if (!ReadNext()) return false;
    av_packet_unref(packet_.get());
    ++next_;
  }
  return true;
}

bool FrameDecoder::MoveTo(uint32_t number) {
  if (number < next_ && !Open()) return false;
  const auto key = std::lower_bound(
      list_.keys.begin(), list_.keys.end(), number,
      [](const KeyPacket& k, uint32_t n) { return k.packet < n; });
  const bool is_sought = input_->CanSeek() && number >= next_ + kWorthSeeking &&
                         key != list_.keys.end() && key->packet == number &&
                         key->position >= 0 &&
                         input_->SeekTo(key->decoding_time, key->time);
  if (!is_sought) return SkipTo(number);
  // Where did it arrive? Often a key packet earlier.
  if (!ReadNext()) return false;
  const auto at = std::find_if(
      list_.keys.begin(), list_.keys.end(), [this](const KeyPacket& k) {
        return k.position == packet_->pos && k.time == packet_->pts;
      });
  if (at != list_.keys.end() && at->packet <= number) {
    next_ = at->packet;
    is_held_ = true;
    if (!SkipTo(number) || !ReadNext()) return false;
    is_held_ = true;
    if (packet_->pos == key->position && packet_->pts == key->time) return true;
  }
  // Somewhere unknown: the packets are counted from the first one.
  return Open() && SkipTo(number);
}

FrameDecoder::Target* FrameDecoder::FindTarget(uint32_t packet) {
  const auto found = numbers_.find(packet);
  return found == numbers_.end() ? nullptr : &targets_[found->second];
}

bool FrameDecoder::IsDamaged(const Target& target) const {
  const auto first =
      std::lower_bound(damaged_.begin(), damaged_.end(), target.key);
  if (first == damaged_.end()) return false;
  return !table_.is_timed || *first <= target.packet;
}

void FrameDecoder::NoteDamage(uint32_t packet, int status) {
  damaged_.insert(std::upper_bound(damaged_.begin(), damaged_.end(), packet),
                  packet);
  damage_ = GetFault(status, "decoding").reason;
}

bool FrameDecoder::Send(AVPacket* packet) {
  itimerval limit = {};
  limit.it_value.tv_sec = kPacketSeconds;
  setitimer(ITIMER_PROF, &limit, nullptr);
  if (packet != nullptr) {
    const auto number = static_cast<uint32_t>(packet->pts);
    const AVCodecID codec = codec_->codec_id;
    const bool is_safe =
        codec == AV_CODEC_ID_H264 || codec == AV_CODEC_ID_MPEG4 ||
        (codec == AV_CODEC_ID_HEVC && HasOneLayer(*input_->stream()->codecpar));
    codec_->skip_frame =
        table_.is_timed && is_safe && FindTarget(number) == nullptr
            ? AVDISCARD_NONREF
            : AVDISCARD_DEFAULT;
  }
  const uint64_t errors = LoggedErrors();
  while (true) {
    const int status = avcodec_send_packet(codec_.get(), packet);
    if (status == AVERROR(EAGAIN)) {
      if (!Receive()) return false;
      continue;
    }
    if (status == AVERROR(ENOMEM)) {
      *fault_ = GetFault(status, "decoding");
      return false;
    }
    const bool is_concealed =
        codec_->codec_id == AV_CODEC_ID_HEVC && LoggedErrors() != errors;
    if ((status < 0 && status != AVERROR_EOF) || is_concealed) {
      NoteDamage(next_ - 1, status < 0 ? status : AVERROR_INVALIDDATA);
    }
    return Receive();
  }
}

bool FrameDecoder::Receive() {
  while (true) {
    const int status = avcodec_receive_frame(codec_.get(), frame_.get());
    if (status == AVERROR(EAGAIN) || status == AVERROR_EOF) return true;
    if (status == AVERROR(ENOMEM)) {
      *fault_ = GetFault(status, "decoding");
      return false;
    }
    if (status < 0) {
      NoteDamage(next_ - 1, status);
      return true;
    }
    const bool is_broken = (frame_->flags & AV_FRAME_FLAG_CORRUPT) != 0 ||
                           frame_->decode_error_flags != 0;
    const auto packet = static_cast<uint32_t>(frame_->pts);
    if (is_broken) NoteDamage(packet, AVERROR_INVALIDDATA);
    const uint32_t number = table_.is_timed ? packet : output_;
    ++output_;
    Target* const target = FindTarget(number);
    if (target != nullptr && !target->is_done && !IsDamaged(*target)) {
      target->is_done = true;
      is_ended_ = !(*take_)(*frame_, target->place);
      if (is_ended_) return false;
    }
    av_frame_unref(frame_.get());
  }
}

bool FrameDecoder::Drain() {
  if (!Send(nullptr)) return false;
  avcodec_flush_buffers(codec_.get());
  return true;
}

#if LIBSWSCALE_VERSION_MAJOR >= 9

bool RgbConverter::Convert(const AVFrame& frame, uint8_t* rows, uint32_t stride,
                           Fault* fault) {
  if (context_ == nullptr) {
    context_ = sws_alloc_context();
    source_.reset(av_frame_alloc());
    target_.reset(av_frame_alloc());
  }
  if (context_ == nullptr || source_ == nullptr || target_ == nullptr ||
      av_frame_ref(source_.get(), &frame) < 0) {
    *fault = {Outcome::kNoMemory, "no memory to convert a frame"};
    return false;
  }
  context_->flags = SWS_BILINEAR;
  context_->threads = 1;
  // No conversion of these is wanted, and some of their values are refused.
  source_->color_trc = AVCOL_TRC_UNSPECIFIED;
  source_->color_primaries = AVCOL_PRI_UNSPECIFIED;
  target_->format = AV_PIX_FMT_RGB24;
  target_->width = frame.width;
  target_->height = frame.height;
  target_->data[0] = rows;
  target_->linesize[0] = static_cast<int>(stride);
  const int written = sws_scale_frame(context_, target_.get(), source_.get());
  av_frame_unref(source_.get());
  if (written >= 0) return true;
  *fault = GetFault(written, "converting to RGB");
  return false;
}

#else

bool RgbConverter::Convert(const AVFrame& frame, uint8_t* rows, uint32_t stride,
                           Fault* fault) {
  const auto format = static_cast<AVPixelFormat>(frame.format);
  // Kept by our own comparison: sws_getCachedContext makes a context of
  // yuvj420p anew for each frame, with the colours of no frame, and often at
  // the address of the last one.
  const bool is_kept = context_ != nullptr && frame.width == width_ &&
                       frame.height == height_ && format == format_ &&
                       frame.colorspace == colorspace_ &&
                       frame.color_range == range_;
  if (!is_kept) {
    sws_freeContext(context_);
    context_ = sws_getContext(frame.width, frame.height, format, frame.width,
                              frame.height, AV_PIX_FMT_RGB24, SWS_BILINEAR,
                              nullptr, nullptr, nullptr);
  }
  if (context_ == nullptr) {
    *fault = {Outcome::kRefused, "its pixel format cannot become RGB"};
    return false;
  }
  width_ = frame.width;
  height_ = frame.height;
  format_ = format;
  colorspace_ = frame.colorspace;
  range_ = frame.color_range;
  if (!is_kept) SetColours(frame);
  uint8_t* const to[4] = {rows};
  const int strides[4] = {static_cast<int>(stride)};
  const int written = sws_scale(context_, frame.data, frame.linesize, 0,
                                frame.height, to, strides);
  if (written == frame.height) return true;
  *fault = GetFault(written, "converting to RGB");
  return false;
}

void RgbConverter::SetColours(const AVFrame& frame) {
  int* old_matrix;
  int* old_target;
  int is_full, target_full, brightness, contrast, saturation;
  if (sws_getColorspaceDetails(context_, &old_matrix, &is_full, &old_target,
                               &target_full, &brightness, &contrast,
                               &saturation) < 0) {
    return;  // not of YUV
  }
  // Formats such as yuvj420p have the full range whatever the frame says.
  if (frame.color_range == AVCOL_RANGE_JPEG) is_full = 1;
  const int* matrix = sws_getCoefficients(frame.colorspace);
  sws_setColorspaceDetails(context_, matrix, is_full, matrix, target_full,
                           brightness, contrast, saturation);
}

#endif

}  // namespace ballast::video_decoder
