// M4A, by FFmpeg's libraries.

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/channel_layout.h>
#include <libavutil/mathematics.h>
#include <libavutil/mem.h>
}

#include <algorithm>
#include <utility>
#include <vector>

#include "server/media/audio/decoder/audio_input.h"
#include "server/media/video/decoder/edit_list.h"
#include "server/media/video/decoder/media_input.h"

namespace ballast::audio_decoder {
namespace {

using video_decoder::EditList;
using video_decoder::GetStretches;
using video_decoder::kToTheEnd;
using video_decoder::MediaInput;
using video_decoder::ReadEditList;
using video_decoder::Stretch;

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
    for (; next_ < stretches_.size(); ++next_, given_ = 0) {
      const Stretch& stretch = stretches_[next_];
      const auto left = static_cast<uint64_t>(stretch.length() - given_);
      if (left == 0) continue;
      auto got = static_cast<size_t>(std::min<uint64_t>(left, most));
      if (stretch.is_silent) {
        std::fill_n(to, got * facts_.channels, 0.0F);
        given_ += static_cast<int64_t>(got);
        return got;
      }
      video_decoder::Fault why;
      const int64_t wanted = stretch.from + given_;
      while (wanted >= decoded_) {
        if (NextFrame(&why)) continue;
        if (why.outcome != video_decoder::Outcome::kOk) Take(why, fault);
        return 0;
      }
      int at = frame_->nb_samples - static_cast<int>(decoded_ - wanted);
      got = std::min<size_t>(got, static_cast<size_t>(frame_->nb_samples - at));
      const auto format = static_cast<AVSampleFormat>(frame_->format);
      for (size_t i = 0; i < got; ++i, ++at) {
        for (int c = 0; c < channels; ++c) {
          *to++ = GetSample(*frame_, format, c, channels, at);
        }
      }
      given_ += static_cast<int64_t>(got);
      return got;
    }
    return 0;
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
      *why = {video_decoder::Outcome::kNoMemory, "no memory for a decoder"};
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

  // Finds what is played: by the edit list of MP4; of other containers all but
  // the encoder's priming, by which the first packet's time is below 0. A
  // fragmented file's header does not count all samples.
  bool ReadFirst(video_decoder::Fault* why) {
    if (!input_->ReadPacket(packet_.get(), why)) {
      if (why->outcome == video_decoder::Outcome::kOk) {
        *why = {video_decoder::Outcome::kRefused, "the file contains no audio"};
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
    const int64_t all = in_samples(stream.duration);
    const bool is_counted = input_->ReasonToScan().empty() && all > 0;
    const EditList list =
        input_->IsMp4() ? ReadEditList(input_.get(), stream.id) : EditList();
    if (list.edits.empty()) {
      const int64_t skipped = std::max<int64_t>(0, -in_samples(packet_->pts));
      stretches_ = {{skipped, is_counted && all > skipped ? all : kToTheEnd}};
    } else {
      const double unit = av_q2d(stream.time_base) * sample.den;
      why->reason.clear();
      if (!GetStretches(list, unit, static_cast<uint32_t>(sample.den),
                        is_counted ? all : kToTheEnd, &stretches_,
                        &why->reason)) {
        why->outcome = video_decoder::Outcome::kRefused;
        return false;
      }
    }
    if (stretches_.back().to == kToTheEnd) return true;
    for (const Stretch& stretch : stretches_) {
      facts_.frames += static_cast<uint64_t>(stretch.length());
    }
    return true;
  }

  // Moves to the next frame.
  bool NextFrame(video_decoder::Fault* why) {
    while (true) {
      const int status = avcodec_receive_frame(codec_.get(), frame_.get());
      if (status == AVERROR(EAGAIN)) {
        if (!SendPacket(why)) return false;
        continue;
      }
      if (status == AVERROR_EOF) return false;
      if (status < 0) {
        *why = video_decoder::GetFault(status, "decoding");
        return false;
      }
      if (!CheckFrame(why)) return false;
      decoded_ += frame_->nb_samples;
      if (frame_->nb_samples > 0) return true;
    }
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
  std::vector<Stretch> stretches_;
  size_t next_ = 0;      // of them
  int64_t given_ = 0;    // samples of the next
  int64_t decoded_ = 0;  // samples up to the end of frame_
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
