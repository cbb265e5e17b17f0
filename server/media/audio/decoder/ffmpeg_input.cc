// M4A, by FFmpeg's libraries.

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/channel_layout.h>
#include <libavutil/mathematics.h>
#include <libavutil/mem.h>
}

#include <algorithm>

#include "server/media/audio/decoder/audio_input.h"
#include "server/media/video/decoder/media_input.h"

namespace ballast::audio_decoder {
namespace {

using video_decoder::MediaInput;

struct FreeDecoding {
  void operator()(AVPacket* packet) const { av_packet_free(&packet); }
  void operator()(AVFrame* frame) const { av_frame_free(&frame); }
  void operator()(AVCodecContext* codec) const { avcodec_free_context(&codec); }
};

void Take(const video_decoder::Fault& from, Fault* fault) {
  fault->reason = from.reason;
  switch (from.outcome) {
    case video_decoder::Outcome::kUnread:
      fault->outcome = Outcome::kUnread;
      break;
    case video_decoder::Outcome::kNoMemory:
      fault->outcome = Outcome::kNoMemory;
      break;
    default:
      fault->outcome = Outcome::kRefused;
  }
}

// One sample of a frame as float32.
float GetSample(const AVFrame& frame, AVSampleFormat format, int channel,
                int channels, int at) {
  const bool is_planar = av_sample_fmt_is_planar(format) != 0;
  const uint8_t* data = frame.extended_data[is_planar ? channel : 0];
  const int i = is_planar ? at : at * channels + channel;
  switch (av_get_packed_sample_fmt(format)) {
    case AV_SAMPLE_FMT_S16:
      return reinterpret_cast<const int16_t*>(data)[i] / 32768.0F;
    case AV_SAMPLE_FMT_S32:
      return static_cast<float>(reinterpret_cast<const int32_t*>(data)[i] /
                                2147483648.0);
    default:
      return reinterpret_cast<const float*>(data)[i];
  }
}

class FfmpegInput : public AudioInput {
 public:
  bool Open(int fd, uint64_t offset, uint64_t bytes, Fault* fault) {
    video_decoder::Fault why;
    input_ = MediaInput::Open(fd, offset, bytes, video_decoder::kAudio, &why);
    if (input_ == nullptr || !OpenCodec(&why) || !ReadFirst(&why)) {
      Take(why, fault);
      return false;
    }
    return true;
  }

  Facts facts() const override { return facts_; }

  size_t Read(float* to, size_t most, Fault* fault) override {
    const auto channels = static_cast<int>(facts_.channels);
    video_decoder::Fault why;
    if (at_ == frame_->nb_samples && !NextFrame(&why)) {
      if (why.outcome != video_decoder::Outcome::kOk) Take(why, fault);
      return 0;
    }
    const auto format = static_cast<AVSampleFormat>(frame_->format);
    size_t got = static_cast<size_t>(frame_->nb_samples - at_);
    got = std::min(got, most);
    if (facts_.frames != 0) {
      got = std::min<uint64_t>(got, facts_.frames - given_);
    }
    for (size_t i = 0; i < got; ++i, ++at_) {
      for (int c = 0; c < channels; ++c) {
        *to++ = GetSample(*frame_, format, c, channels, at_);
      }
    }
    given_ += got;
    return got;
  }

 private:
  bool OpenCodec(video_decoder::Fault* why) {
    const AVCodecParameters& form = *input_->stream()->codecpar;
    facts_.rate = static_cast<uint32_t>(std::max(form.sample_rate, 0));
    facts_.channels =
        static_cast<uint32_t>(std::max(form.ch_layout.nb_channels, 0));
    const AVCodec* codec = avcodec_find_decoder(form.codec_id);
    codec_.reset(codec == nullptr ? nullptr : avcodec_alloc_context3(codec));
    packet_.reset(av_packet_alloc());
    frame_.reset(av_frame_alloc());
    if (codec_ == nullptr) {
      *why = {video_decoder::Outcome::kRefused,
              std::string("no decoder for ") + avcodec_get_name(form.codec_id)};
      return false;
    }
    int status = avcodec_parameters_to_context(codec_.get(), &form);
    codec_->thread_count = 1;
    codec_->pkt_timebase = input_->stream()->time_base;
    codec_->err_recognition =
        AV_EF_CRCCHECK | AV_EF_BITSTREAM | AV_EF_BUFFER | AV_EF_EXPLODE;
    // The priming and the padding are cut off here, to the sample.
    codec_->flags2 |= AV_CODEC_FLAG2_SKIP_MANUAL;
    if (status >= 0) status = avcodec_open2(codec_.get(), codec, nullptr);
    if (status < 0) *why = video_decoder::GetFault(status, "opening the codec");
    return status >= 0;
  }

  // The first packet's time is below 0 by the encoder's priming. The header's
  // duration contains it; a fragmented file's does not count all.
  bool ReadFirst(video_decoder::Fault* why) {
    if (!input_->ReadPacket(packet_.get(), why)) {
      if (why->outcome == video_decoder::Outcome::kOk) {
        *why = {video_decoder::Outcome::kRefused, "the file holds no sample"};
      }
      return false;
    }
    is_held_ = true;
    const AVStream& stream = *input_->stream();
    const AVRational sample = {1, std::max(codec_->sample_rate, 1)};
    const auto in_samples = [&](int64_t time) {
      return time == AV_NOPTS_VALUE
                 ? 0
                 : av_rescale_q(time, stream.time_base, sample);
    };
    skipped_ = std::max<int64_t>(0, -in_samples(packet_->pts));
    const int64_t all = in_samples(stream.duration) - skipped_;
    if (input_->ReasonToScan().empty() && all > 0) {
      facts_.frames = static_cast<uint64_t>(all);
    }
    return true;
  }

  // Moves to a frame with a sample that counts.
  bool NextFrame(video_decoder::Fault* why) {
    while (facts_.frames == 0 || given_ < facts_.frames) {
      const int status = avcodec_receive_frame(codec_.get(), frame_.get());
      if (status == AVERROR(EAGAIN)) {
        if (!SendPacket(why)) return false;
        continue;
      }
      if (status == AVERROR_EOF) break;
      if (status < 0) {
        *why = video_decoder::GetFault(status, "decoding");
        break;
      }
      if (!CheckFrame(why)) break;
      at_ = static_cast<int>(std::min<int64_t>(skipped_, frame_->nb_samples));
      skipped_ -= at_;
      if (at_ < frame_->nb_samples) return true;
    }
    at_ = frame_->nb_samples = 0;
    return false;
  }

  bool CheckFrame(video_decoder::Fault* why) const {
    const AVSampleFormat packed =
        av_get_packed_sample_fmt(static_cast<AVSampleFormat>(frame_->format));
    if (frame_->sample_rate == static_cast<int>(facts_.rate) &&
        frame_->ch_layout.nb_channels == static_cast<int>(facts_.channels) &&
        (packed == AV_SAMPLE_FMT_FLT || packed == AV_SAMPLE_FMT_S16 ||
         packed == AV_SAMPLE_FMT_S32)) {
      return true;
    }
    *why = {video_decoder::Outcome::kRefused,
            "the stream has " + std::to_string(frame_->sample_rate) +
                " samples a second and " +
                std::to_string(frame_->ch_layout.nb_channels) +
                " channels, the header says " + std::to_string(facts_.rate) +
                " and " + std::to_string(facts_.channels)};
    return false;
  }

  bool SendPacket(video_decoder::Fault* why) {
    bool is_there = is_held_ || input_->ReadPacket(packet_.get(), why);
    is_held_ = false;
    if (!is_there && why->outcome != video_decoder::Outcome::kOk) return false;
    const int status =
        avcodec_send_packet(codec_.get(), is_there ? packet_.get() : nullptr);
    if (is_there) av_packet_unref(packet_.get());
    if (status >= 0 || (!is_there && status == AVERROR_EOF)) return true;
    *why = video_decoder::GetFault(status, "decoding");
    return false;
  }

  std::unique_ptr<MediaInput> input_;
  std::unique_ptr<AVCodecContext, FreeDecoding> codec_;
  std::unique_ptr<AVPacket, FreeDecoding> packet_;
  std::unique_ptr<AVFrame, FreeDecoding> frame_;
  Facts facts_ = {};
  bool is_held_ = false;  // the first packet is in packet_
  int64_t skipped_ = 0;   // samples still to be cut off at the start
  int at_ = 0;            // in frame_
  uint64_t given_ = 0;
};

}  // namespace

std::unique_ptr<AudioInput> OpenAudio(int fd, uint64_t offset, uint64_t bytes,
                                      Fault* fault) {
  video_decoder::RequireBuiltVersion();
  av_max_alloc(kLargestAllocation);
  video_decoder::KeepLastError();
  auto input = std::make_unique<FfmpegInput>();
  if (!input->Open(fd, offset, bytes, fault)) return nullptr;
  return input;
}

}  // namespace ballast::audio_decoder
