#ifndef BALLAST_SERVER_MEDIA_VIDEO_DECODER_MEDIA_INPUT_H_
#define BALLAST_SERVER_MEDIA_VIDEO_DECODER_MEDIA_INPUT_H_

extern "C" {
#include <libavformat/avformat.h>
}

#include <string.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "server/media/video/decoder/decoder_protocol.h"

namespace ballast::video_decoder {

// Why a request fails; `outcome` is kOk while it does not.
struct Fault {
  Outcome outcome = Outcome::kOk;
  std::string reason;
};

// A status of libav* in words, with the last line that it logged. An I/O error
// of the input overrules it.
Fault GetFault(int error, const std::string& what);

// Ends the program as one whose libraries cannot be loaded, with a line on
// stderr, if it has met another libavcodec than it was built with: pixels would
// differ without a word. Call before anything is decoded.
void RequireBuiltVersion();

// Makes the libraries log nothing but remember their last error for GetFault.
void KeepLastError();

// Errors that the libraries have logged so far.
uint64_t LoggedErrors();

// The stream of a file that is read.
struct MediaKind {
  AVMediaType type;
  const char* name;        // for messages
  const char* containers;  // of libavformat
  const char* codecs;      // decoders of libavcodec
  const char* wanted;      // the codecs, for messages
  // Whether times and durations follow an edit list, which counts in separate
  // units.
  bool follow_edits;
};
extern const MediaKind kVideo;
extern const MediaKind kAudio;  // of M4A and videos

// The number in `bytes` bytes, the highest first.
uint64_t ReadNumber(const uint8_t* from, int bytes);

// A box at the top of an MP4 file.
struct Mp4Box {
  // `head`: 32-bit length, name, and a 64-bit length if the first is 1.
  explicit Mp4Box(const uint8_t (&head)[16]);

  bool Is(const char* wanted) const { return memcmp(name, wanted, 4) == 0; }

  uint8_t name[4];
  uint64_t length;  // with the head; 0: to the end of the file
};

// A range of a file as libavformat reads it. Demuxers, decoders and what they
// may open are limited: other files never are.
class MediaInput {
 public:
  // Reads the headers of `bytes` bytes from `offset` on. `fd` stays open. What
  // is read in all is bounded, whatever a damaged index says. nullptr: `fault`.
  static std::unique_ptr<MediaInput> Open(int fd, uint64_t offset,
                                          uint64_t bytes, const MediaKind& kind,
                                          Fault* fault);
  ~MediaInput();
  MediaInput(const MediaInput&) = delete;
  MediaInput& operator=(const MediaInput&) = delete;

  // Reads the next packet of the stream. Returns false at the end and after a
  // fault.
  bool ReadPacket(AVPacket* packet, Fault* fault);

  // From here on the bytes of the file read as zeros. For containers whose
  // headers describe every packet, so that only headers are read.
  void HidePayload() { is_hidden_ = true; }
  // Whether HidePayload leaves packets, times and flags as they are.
  bool CanHidePayload() const;
  bool IsMp4() const;
  // Why the headers alone do not describe every packet.
  std::string ReasonToScan() const;

  // Reads up to `size` bytes at `position`, hidden or not, without moving.
  // Returns how many.
  size_t Peek(int64_t position, size_t size, uint8_t* to);

  // Whether packets can be sought by time.
  bool CanSeek() const;
  // Moves to a key packet at or before the one with these times.
  bool SeekTo(int64_t decoding_time, int64_t time);

  AVFormatContext* format() { return format_; }
  const AVStream* stream() const { return format_->streams[stream_]; }
  uint64_t bytes() const { return bytes_; }  // of the range
  uint64_t bytes_read() const { return read_; }

 private:
  MediaInput() = default;
  bool FindStream(const MediaKind& kind, Fault* fault);
  bool HasFragments();
  int Read(uint8_t* to, int size);
  int64_t Seek(int64_t offset, int whence);

  int fd_ = -1;
  uint64_t offset_ = 0;
  uint64_t bytes_ = 0;
  uint64_t next_ = 0;  // in the range
  uint64_t read_ = 0;
  uint64_t hidden_ = 0;  // bytes that read as zeros
  bool is_hidden_ = false;
  bool has_fragments_ = false;
  int io_error_ = 0;
  bool is_over_limit_ = false;
  AVIOContext* io_ = nullptr;
  AVFormatContext* format_ = nullptr;
  int stream_ = -1;
};

}  // namespace ballast::video_decoder

#endif  // BALLAST_SERVER_MEDIA_VIDEO_DECODER_MEDIA_INPUT_H_
