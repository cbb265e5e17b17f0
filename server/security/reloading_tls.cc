#include "server/security/reloading_tls.h"

#include <cstddef>
#include <utility>
#include <vector>

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpcpp/security/auth_metadata_processor.h>

namespace ballast {
namespace {

using Processor = grpc::AuthMetadataProcessor;

// State of one listening port. gRPC owns it until the port is closed.
struct Port {
  std::shared_ptr<const LiveTlsMaterial> material;
  // The material of the last handshake. gRPC calls Fetch under a lock.
  std::shared_ptr<const TlsMaterial> shown;
  std::shared_ptr<Processor> processor;  // null: every call is admitted
};

// Called before each handshake.
grpc_ssl_certificate_config_reload_status Fetch(
    void* user_data, grpc_ssl_server_certificate_config** config) {
  Port& port = *static_cast<Port*>(user_data);
  std::shared_ptr<const TlsMaterial> now = port.material->Get();
  if (now == port.shown) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  port.shown = std::move(now);
  const TlsIdentity& identity = port.shown->identity;
  const grpc_ssl_pem_key_cert_pair pair = {identity.key.c_str(),
                                           identity.cert.c_str()};
  // gRPC requires authorities even if clients show no certificate; it does not
  // use them then.
  const std::string& client_ca =
      port.shown->client_ca.empty() ? identity.cert : port.shown->client_ca;
  *config =
      grpc_ssl_server_certificate_config_create(client_ca.c_str(), &pair, 1);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

grpc::string_ref ViewOf(const grpc_slice& slice) {
  return grpc::string_ref(
      reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
      GRPC_SLICE_LENGTH(slice));
}

// Entries that refer to `metadata`.
std::vector<grpc_metadata> EntriesOf(
    const Processor::OutputMetadata& metadata) {
  std::vector<grpc_metadata> entries;
  for (const auto& [key, value] : metadata) {
    grpc_metadata& entry = entries.emplace_back();
    entry = {};
    entry.key = grpc_slice_from_static_buffer(key.data(), key.size());
    entry.value = grpc_slice_from_static_buffer(value.data(), value.size());
  }
  return entries;
}

// Passes a call's metadata to the processor and its answer to gRPC, which
// copies what it needs before `done` returns.
void Process(void* state, grpc_auth_context* /*context*/,
             const grpc_metadata* metadata, size_t count,
             grpc_process_auth_metadata_done_cb done, void* user_data) {
  Processor::InputMetadata input;
  for (size_t i = 0; i < count; ++i) {
    input.emplace(ViewOf(metadata[i].key), ViewOf(metadata[i].value));
  }
  Processor::OutputMetadata consumed;
  Processor::OutputMetadata response;
  const grpc::Status status = static_cast<Port*>(state)->processor->Process(
      input, nullptr, &consumed, &response);
  const std::vector<grpc_metadata> taken = EntriesOf(consumed);
  const std::vector<grpc_metadata> given = EntriesOf(response);
  done(user_data, taken.data(), taken.size(), given.data(), given.size(),
       static_cast<grpc_status_code>(status.error_code()),
       status.error_message().c_str());
}

void Destroy(void* state) { delete static_cast<Port*>(state); }

class ReloadingCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadingCredentials(std::shared_ptr<const LiveTlsMaterial> material)
      : material_(std::move(material)),
        request_(
            material_->Get()->client_ca.empty()
                ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY) {}

  void SetAuthMetadataProcessor(
      const std::shared_ptr<Processor>& processor) override {
    processor_ = processor;
  }

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    auto* const port = new Port{material_, nullptr, processor_};
    grpc_server_credentials* const credentials =
        grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                request_, &Fetch, port));
    // Set even without a processor: the credentials free the port together with
    // it.
    grpc_server_credentials_set_auth_metadata_processor(
        credentials,
        {processor_ == nullptr ? nullptr : &Process, &Destroy, port});
    const int number =
        grpc_server_add_http2_port(server, address.c_str(), credentials);
    grpc_server_credentials_release(credentials);
    return number;
  }

  const std::shared_ptr<const LiveTlsMaterial> material_;
  const grpc_ssl_client_certificate_request_type request_;
  std::shared_ptr<Processor> processor_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ReloadingTlsCredentials(
    std::shared_ptr<const LiveTlsMaterial> material) {
  return std::make_shared<ReloadingCredentials>(std::move(material));
}

}  // namespace ballast
