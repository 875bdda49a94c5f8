#include "server/scheduler/token_sampler.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "kernels/float_mode.h"

namespace flash {
namespace {

// Fills in what was asked about `token`, whose id is set. `piece_of`: the bytes
// of an id in this place.
template <typename PieceOf>
void Describe(const Logprobs& logprobs, int32_t num_candidates,
              const PieceOf& piece_of, TokenInfo& token) {
  const TokenLogprob chosen = logprobs.Id(token.id);
  token.logprob = chosen.logprob;
  token.rank = chosen.rank;
  if (num_candidates == 0) return;
  const std::vector<TokenLogprob> top = logprobs.Top(num_candidates);
  token.candidates.reserve(top.size());
  for (const TokenLogprob& each : top) {
    token.candidates.push_back(
        {each.id, each.logprob, each.rank, piece_of(each.id)});
  }
}

}  // namespace

TokenSampler::TokenSampler(int vocab_size, int num_samplers,
                           const Tokenizer& tokenizer, ParallelFor parallel_for)
    : tokenizer_(tokenizer), parallel_for_(std::move(parallel_for)) {
  scratch_.reserve(num_samplers);
  for (int i = 0; i < num_samplers; ++i) scratch_.emplace_back(vocab_size);
}

void TokenSampler::Run(std::vector<TokenJob>& jobs) {
  // Whoever is free takes the next job: they differ in length.
  std::atomic<size_t> next{0};
  const auto take_jobs = [&](int sampler) {
    for (size_t job = next++; job < jobs.size(); job = next++) {
      RunJob(jobs[job], scratch_[sampler]);
    }
  };
  const int num_samplers =
      static_cast<int>(std::min(jobs.size(), scratch_.size()));
  if (num_samplers > 1 && parallel_for_) {
    parallel_for_(num_samplers, take_jobs);
  } else if (num_samplers > 0) {
    take_jobs(0);
  }
}

void TokenSampler::RunJob(TokenJob& job, SamplingScratch& scratch) const {
  // Alone on the decode thread as among others on the compute threads: a
  // penalty may make denormals of logits.
  const FloatMode mode;
  job.status = job.output != nullptr ? Sample(job, scratch) : ScorePrompt(job);
}

absl::Status TokenSampler::Sample(TokenJob& job,
                                  SamplingScratch& scratch) const {
  const LiveOutput& output = *job.output;
  const Request& request = job.request->request();
  const absl::StatusOr<int32_t> id =
      SampleToken({.logits = job.logits,
                   .options = request.sampling,
                   .history = output.history,
                   .forbidden = job.request->Forbidden(output),
                   .num_pieces = tokenizer_.num_pieces(),
                   .draw = job.request->NextDraw(output)},
                  scratch);
  if (!id.ok()) return id.status();
  job.token.id = *id;
  job.token.piece = output.text.Piece(*id);
  if (request.response.logprobs < 0) return absl::OkStatus();
  const absl::StatusOr<Logprobs> logprobs = Logprobs::Of(job.logits);
  if (!logprobs.ok()) return logprobs.status();
  Describe(
      *logprobs, request.response.logprobs,
      [&](int32_t each) { return output.text.Piece(each); }, job.token);
  return absl::OkStatus();
}

absl::Status TokenSampler::ScorePrompt(TokenJob& job) const {
  const absl::StatusOr<Logprobs> logprobs = Logprobs::Of(job.logits);
  if (!logprobs.ok()) return logprobs.status();
  const Tokenizer::Place place = job.request->PromptPlace(job.prompt_index);
  Describe(
      *logprobs, job.request->request().response.prompt_logprobs,
      [&](int32_t each) { return tokenizer_.Piece(each, place); },
      job.request->prompt_tokens()[job.prompt_index]);
  return absl::OkStatus();
}

}  // namespace flash
