#include "tests/server/media/audio/made_headers.h"

namespace ballast {

std::string Little(uint64_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) {
    bytes.push_back(static_cast<char>(value >> (8 * i) & 0xFF));
  }
  return bytes;
}

std::string Big(uint64_t value, int size) {
  std::string bytes = Little(value, size);
  return {bytes.rbegin(), bytes.rend()};
}

std::string Flac(uint64_t rate, uint64_t channels, uint64_t samples) {
  return "fLaC" + Big(0x80, 1) + Big(34, 3) + Big(4096, 2) + Big(4096, 2) +
         Big(0, 6) +
         Big(rate << 44 | (channels - 1) << 41 | 15ull << 36 | samples, 8) +
         std::string(16, 'm');
}

std::string Id3(uint64_t bytes) {
  return "ID3" + Big(0x040000, 3) + Big(bytes >> 7, 3) + Big(bytes & 127, 1) +
         std::string(bytes, '\0');
}

std::string Mp3(const std::string& tag, int frames) {
  std::string bytes;
  for (int i = 0; i < frames; ++i) {
    std::string frame = Big(0xFFFB9064, 4) + std::string(413, '\0');
    if (i == 0) frame.replace(36, tag.size(), tag);
    bytes += frame;
  }
  return bytes;
}

std::string Info(uint64_t frames, uint64_t bytes, uint64_t delay,
                 uint64_t padding, const std::string& encoder) {
  return "Info" + Big(15, 4) + Big(frames, 4) + Big(bytes, 4) +
         std::string(100, 'i') + Big(0, 4) + encoder + std::string(12, '\0') +
         Big(delay << 12 | padding, 3) + std::string(12, '\0');
}

namespace {

// The checksum of Ogg (RFC 3533): CRC-32 from the highest bit on.
uint64_t OggChecksum(const std::string& bytes) {
  uint32_t sum = 0;
  for (const char byte : bytes) {
    sum ^= uint32_t{static_cast<uint8_t>(byte)} << 24;
    for (int bit = 0; bit < 8; ++bit) {
      sum = sum << 1 ^ ((sum & 0x80000000) != 0 ? 0x04C11DB7 : 0);
    }
  }
  return sum;
}

// A page of one packet.
std::string Page(const std::string& packet, uint64_t position, int flags,
                 uint64_t serial) {
  std::string sizes(packet.size() / 255, '\xFF');
  sizes.push_back(static_cast<char>(packet.size() % 255));
  std::string page = std::string("OggS") +
                     Big(static_cast<uint64_t>(flags), 2) +
                     Little(position, 8) + Little(serial, 4) + Little(0, 8) +
                     Big(sizes.size(), 1) + sizes + packet;
  return page.replace(22, 4, Little(OggChecksum(page), 4));
}

}  // namespace

std::string OpusHead(uint64_t skip, uint64_t rate) {
  return "OpusHead" + Big(1, 1) + Big(2, 1) + Little(skip, 2) +
         Little(rate, 4) + std::string(3, '\0');
}

std::string Ogg(const std::string& head, uint64_t position, int flags,
                uint64_t serial) {
  return Page(head, 0, 2, 9) + Page(std::string(700, 'x'), 500, 0, 9) +
         Page(std::string(900, 'y'), position, flags, serial);
}

}  // namespace ballast
