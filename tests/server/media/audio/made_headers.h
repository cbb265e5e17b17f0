#ifndef BALLAST_TESTS_SERVER_MEDIA_AUDIO_MADE_HEADERS_H_
#define BALLAST_TESTS_SERVER_MEDIA_AUDIO_MADE_HEADERS_H_

#include <cstdint>
#include <string>

namespace ballast {

// Headers of audio as their formats define them, with bytes that are no audio.

// Numbers of `size` bytes.
std::string Little(uint64_t value, int size);
std::string Big(uint64_t value, int size);

std::string Flac(uint64_t rate, uint64_t channels, uint64_t samples);

// A tag of `bytes` bytes before FLAC or MP3.
std::string Id3(uint64_t bytes);

// Frames of MPEG 1, 44.1 kHz, 128 kbit/s, stereo: 417 bytes. The first may hold
// `tag` after its side information.
std::string Mp3(const std::string& tag, int frames);
// Such a tag; `encoder` has 9 bytes.
std::string Info(uint64_t frames, uint64_t bytes, uint64_t delay,
                 uint64_t padding, const std::string& encoder);

// Three pages: the packet `head`, 700 bytes, and 900 whose
// page has this position, flags and serial number (of the others: 9).
std::string Ogg(const std::string& head, uint64_t position, int flags = 4,
                uint64_t serial = 9);
std::string OpusHead(uint64_t skip, uint64_t rate);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_MEDIA_AUDIO_MADE_HEADERS_H_
