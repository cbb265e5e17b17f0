#include "tests/integration/security/small_server.h"

#include <utility>

#include "common/status_macros.h"
#include "server/text/model_tokenizer.h"
#include "tests/fakes/fake_sample_source.h"
#include "tests/fakes/job_config.h"
#include "tests/fakes/test_certificates.h"

namespace ballast {

absl::StatusOr<std::unique_ptr<LoaderServer>> StartSmallServer(
    const std::string& address, const v1::Security& security) {
  OpenedJob job;
  job.config = JobConfig(2, 2, 16, 8);
  job.config.mutable_serve()->clear_listen();
  job.config.mutable_serve()->add_listen(address);
  job.config.mutable_topology()->mutable_servers(0)->set_address(address);
  *job.config.mutable_security() = security;
  job.tokenizer = *MakeTokenizer("bytes");
  job.text = *ModelText::Create(job.config.model(), job.tokenizer.get());
  auto source = std::make_unique<FakeSampleSource>(job.config, 32);
  job.scheduler = *Scheduler::Create(job.config, {&source->index()});
  job.sources.push_back(std::move(source));
  return LoaderServer::Start(std::move(job));
}

void SetIdentity(const TlsIdentity& identity, v1::Security* security) {
  v1::Security::Tls& tls = *security->mutable_tls();
  tls.set_cert(WriteTestFile("server.pem", identity.cert));
  tls.set_key(WriteTestFile("server.key", identity.key));
}

absl::Status TryAttach(const std::string& address,
                       const ChannelSecurity& security) {
  return LoaderClient::CreateSecure(address, security)->Attach({}, {}).status();
}

absl::Status TryPull(const std::string& address,
                     const ChannelSecurity& security) {
  const auto client = LoaderClient::CreateSecure(address, security);
  FetchRequest request;
  request.role.set_module(v1::MODULE_VISION);
  request.steps = 1;
  // A client that may not attach still tries to.
  const auto attached = client->Attach({}, {});
  request.fingerprint =
      attached.ok() ? attached->fingerprint().hash() : std::string("none");
  BALLAST_ASSIGN_OR_RETURN(const auto fetcher, client->OpenPull(request));
  return fetcher->Fetch().status();
}

}  // namespace ballast
