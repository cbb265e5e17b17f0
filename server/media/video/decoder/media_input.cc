#include "server/media/video/decoder/media_input.h"

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavutil/avstring.h>
#include <libavutil/dict.h>
#include <libavutil/error.h>
#include <libavutil/log.h>
#include <libavutil/mem.h>
}

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "common/helper_program.h"

namespace ballast::video_decoder {
namespace {

constexpr int kBufferBytes = 1 << 17;
// All of the file that may be read, in multiples of its length: an index may
// send a demuxer back and forth.
constexpr uint64_t kMaxReadings = 8;
constexpr uint64_t kFreeReading = uint64_t{64} << 20;

// Containers in which people keep videos. Playlists and formats that name other
// files are not among them.
constexpr char kContainers[] =
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,ivf,"
    "h264,hevc,m4v,mpegvideo,obu";
constexpr char kCodecs[] =
    "h264,hevc,vp8,vp9,libdav1d,mpeg4,mpeg1video,mpeg2video,mjpeg,msmpeg4,"
    "msmpeg4v2,msmpeg4v1,h263,flv,wmv1,wmv2,wmv3,vc1,theora,vp6,vp6f,prores,"
    "dnxhd,ffv1,huffyuv,rawvideo,png,svq3,cinepak,dvvideo";

char last_error[512];
uint64_t logged_errors = 0;

void RememberError(void*, int level, const char* format, va_list arguments) {
  if (level > AV_LOG_ERROR) return;
  ++logged_errors;
  char line[sizeof(last_error)];
  vsnprintf(line, sizeof(line), format, arguments);
  // Continuations and empty lines say nothing alone.
  if (strlen(line) < 4) return;
  line[strcspn(line, "\n")] = '\0';
  memcpy(last_error, line, sizeof(line));
}

int RefuseToOpen(AVFormatContext*, AVIOContext**, const char*, int,
                 AVDictionary**) {
  return AVERROR(EACCES);
}

}  // namespace

// Decoders of others are not in releases' FFmpeg.
const MediaKind kVideo = {
    AVMEDIA_TYPE_VIDEO,
    "video",
    kContainers,
    kCodecs,
    "H.264, HEVC, VP8, VP9, AV1 or another that docs/video.md lists",
    /*follow_edits=*/true};
// In M4A and in videos.
const MediaKind kAudio = {
    AVMEDIA_TYPE_AUDIO,    "audio", kContainers, "aac,alac", "AAC or ALAC",
    /*follow_edits=*/false};

void RequireBuiltVersion() {
  const unsigned found = avcodec_version();
  const unsigned wanted = LIBAVCODEC_VERSION_INT;
  if (found == wanted) return;
  fprintf(stderr,
          "libavcodec has version %u.%u.%u, wanted %u.%u.%u as when this "
          "program was built\n",
          found >> 16, found >> 8 & 255, found & 255, wanted >> 16,
          wanted >> 8 & 255, wanted & 255);
  _exit(kExitNoLibraries);
}

void KeepLastError() { av_log_set_callback(RememberError); }

uint64_t LoggedErrors() { return logged_errors; }

Fault GetFault(int error, const std::string& what) {
  char text[AV_ERROR_MAX_STRING_SIZE] = {};
  av_strerror(error, text, sizeof(text));
  Fault fault = {Outcome::kRefused, what + ": " + text};
  if (last_error[0] != '\0') fault.reason += std::string("; ") + last_error;
  last_error[0] = '\0';
  if (error == AVERROR(ENOMEM)) fault.outcome = Outcome::kNoMemory;
  return fault;
}

std::unique_ptr<MediaInput> MediaInput::Open(int fd, uint64_t offset,
                                             uint64_t bytes,
                                             const MediaKind& kind,
                                             Fault* fault) {
  std::unique_ptr<MediaInput> input(new MediaInput());
  input->fd_ = fd;
  input->offset_ = offset;
  input->bytes_ = bytes;
  last_error[0] = '\0';
  auto* buffer = static_cast<uint8_t*>(av_malloc(kBufferBytes));
  input->format_ = avformat_alloc_context();
  if (buffer != nullptr) {
    input->io_ = avio_alloc_context(
        buffer, kBufferBytes, 0, input.get(),
        [](void* self, uint8_t* to, int size) {
          return static_cast<MediaInput*>(self)->Read(to, size);
        },
        nullptr,
        [](void* self, int64_t to, int whence) {
          return static_cast<MediaInput*>(self)->Seek(to, whence);
        });
  }
  if (input->io_ == nullptr || input->format_ == nullptr) {
    if (input->io_ == nullptr) av_free(buffer);
    *fault = {Outcome::kNoMemory,
              std::string("no memory to read the ") + kind.name};
    return nullptr;
  }
  AVFormatContext* format = input->format_;
  format->pb = input->io_;
  format->flags |= AVFMT_FLAG_CUSTOM_IO;
  format->io_open = RefuseToOpen;
  format->format_whitelist = av_strdup(kind.containers);
  format->codec_whitelist = av_strdup(kind.codecs);
  format->protocol_whitelist = av_strdup("");
  format->max_streams = 64;
  format->max_index_size = 64 << 20;
  // avformat_open_input frees the context if it fails.
  AVDictionary* options = nullptr;
  if (!kind.follow_edits) av_dict_set(&options, "advanced_editlist", "0", 0);
  const int opened =
      avformat_open_input(&input->format_, nullptr, nullptr, &options);
  av_dict_free(&options);
  if (opened < 0) {
    *fault =
        GetFault(opened, std::string("no ") + kind.name + " that can be read");
  } else if (input->FindStream(kind, fault)) {
    return input;
  }
  if (input->io_error_ != 0) {
    *fault = {Outcome::kUnread, strerror(input->io_error_)};
  }
  return nullptr;
}

MediaInput::~MediaInput() {
  if (format_ != nullptr) avformat_close_input(&format_);
  if (io_ != nullptr) {
    av_freep(&io_->buffer);
    avio_context_free(&io_);
  }
}

bool MediaInput::FindStream(const MediaKind& kind, Fault* fault) {
  const int found = avformat_find_stream_info(format_, nullptr);
  if (found < 0) {
    *fault = GetFault(found, "no stream could be identified");
    return false;
  }
  stream_ = av_find_best_stream(format_, kind.type, -1, -1, nullptr, 0);
  if (stream_ < 0 ||
      (stream()->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0) {
    *fault = {Outcome::kRefused,
              std::string("the file has no ") + kind.name + " stream"};
    return false;
  }
  const AVCodecID codec = stream()->codecpar->codec_id;
  const AVCodec* const decoder = avcodec_find_decoder(codec);
  if (decoder == nullptr ||
      av_match_list(decoder->name, kind.codecs, ',') == 0) {
    *fault = {Outcome::kRefused, std::string(kind.name) + " of codec " +
                                     avcodec_get_name(codec) + "; wanted " +
                                     kind.wanted};
    return false;
  }
  for (unsigned i = 0; i < format_->nb_streams; ++i) {
    if (static_cast<int>(i) != stream_) {
      format_->streams[i]->discard = AVDISCARD_ALL;
    }
  }
  has_fragments_ = HasFragments();
  return true;
}

uint64_t ReadNumber(const uint8_t* from, int bytes) {
  uint64_t number = 0;
  for (int i = 0; i < bytes; ++i) number = number << 8 | from[i];
  return number;
}

Mp4Box::Mp4Box(const uint8_t (&head)[16]) : length(ReadNumber(head, 4)) {
  memcpy(name, head + 4, sizeof(name));
  if (length == 1) length = ReadNumber(head + 8, 8);
}

bool MediaInput::HasFragments() {
  if (!IsMp4()) return false;
  uint64_t at = 0;
  for (int boxes = 0; boxes < 4096 && at + 16 <= bytes_; ++boxes) {
    uint8_t head[16];
    if (pread(fd_, head, sizeof(head), static_cast<off_t>(offset_ + at)) !=
        static_cast<ssize_t>(sizeof(head))) {
      return true;  // reading it all will show
    }
    const Mp4Box box(head);
    if (box.Is("moof")) return true;
    if (box.length < 8 || box.length > bytes_ - at) return false;
    at += box.length;
  }
  return false;
}

bool MediaInput::ReadPacket(AVPacket* packet, Fault* fault) {
  while (true) {
    const int status = av_read_frame(format_, packet);
    if (is_over_limit_) {
      *fault = {Outcome::kRefused,
                "the file's index makes a reader read it many times over"};
    } else if (io_error_ != 0) {
      *fault = {Outcome::kUnread, strerror(io_error_)};
    } else if (status < 0 && status != AVERROR_EOF) {
      *fault = GetFault(status, "reading a packet");
    }
    if (status < 0 || fault->outcome != Outcome::kOk) {
      if (status >= 0) av_packet_unref(packet);
      return false;
    }
    if (packet->stream_index == stream_) return true;
    av_packet_unref(packet);
  }
}

bool MediaInput::IsMp4() const {
  return strstr(format_->iformat->name, "mp4") != nullptr;
}

bool MediaInput::CanHidePayload() const { return ReasonToScan().empty(); }

std::string MediaInput::ReasonToScan() const {
  if (!IsMp4()) {
    return std::string(format_->iformat->name) +
           ": the header does not list the frames";
  }
  if (has_fragments_) {
    return "fragmented: the header lists no frames after the first fragment";
  }
  return "";
}

bool MediaInput::CanSeek() const {
  const char* name = format_->iformat->name;
  return (IsMp4() && !has_fragments_) || strstr(name, "matroska") != nullptr;
}

bool MediaInput::SeekTo(int64_t decoding_time, int64_t time) {
  // Matroska's index holds times of presentation.
  return av_seek_frame(format_, stream_, IsMp4() ? decoding_time : time,
                       AVSEEK_FLAG_BACKWARD) >= 0;
}

size_t MediaInput::Peek(int64_t position, size_t size, uint8_t* to) {
  if (position < 0 || static_cast<uint64_t>(position) >= bytes_) return 0;
  const auto at = static_cast<uint64_t>(position);
  size = std::min<uint64_t>(size, bytes_ - at);
  const ssize_t got = pread(fd_, to, size, static_cast<off_t>(offset_ + at));
  if (got <= 0) return 0;
  read_ += static_cast<uint64_t>(got);
  return static_cast<size_t>(got);
}

int MediaInput::Read(uint8_t* to, int size) {
  if (next_ >= bytes_) return AVERROR_EOF;
  const uint64_t most =
      std::min<uint64_t>(static_cast<uint64_t>(size), bytes_ - next_);
  const bool is_free = read_ + hidden_ <= kFreeReading + bytes_ * kMaxReadings;
  if (!is_free) {
    is_over_limit_ = true;
    return AVERROR_EXIT;
  }
  if (is_hidden_) {
    memset(to, 0, most);
    hidden_ += most;
    next_ += most;
    return static_cast<int>(most);
  }
  ssize_t got;
  do {
    got = pread(fd_, to, most, static_cast<off_t>(offset_ + next_));
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    io_error_ = errno;
    return AVERROR(errno);
  }
  if (got == 0) return AVERROR_EOF;
  next_ += static_cast<uint64_t>(got);
  read_ += static_cast<uint64_t>(got);
  return static_cast<int>(got);
}

int64_t MediaInput::Seek(int64_t offset, int whence) {
  if ((whence & AVSEEK_SIZE) != 0) return static_cast<int64_t>(bytes_);
  whence &= ~AVSEEK_FORCE;
  int64_t to = offset;
  if (whence == SEEK_CUR) to += static_cast<int64_t>(next_);
  if (whence == SEEK_END) to += static_cast<int64_t>(bytes_);
  if (to < 0) return AVERROR(EINVAL);
  next_ = static_cast<uint64_t>(to);
  return to;
}

}  // namespace ballast::video_decoder
