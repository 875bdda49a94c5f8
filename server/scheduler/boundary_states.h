// What becomes of the states at chunk boundaries, where they are small: those
// of prompts are offered to the prefix states, those of outputs are
// checkpoints, and some are the way back to before a stop string.

#ifndef SERVER_SCHEDULER_BOUNDARY_STATES_H_
#define SERVER_SCHEDULER_BOUNDARY_STATES_H_

#include <memory>
#include <string>

#include "server/model/language_model.h"
#include "server/scheduler/engine_options.h"
#include "server/scheduler/live_request.h"

namespace flash {

// Thread safety: the decode thread only.
class BoundaryStates {
 public:
  // Both are borrowed.
  BoundaryStates(const EngineOptions& options, LanguageModel* model)
      : options_(options), model_(*model) {}

  // Lets a request that has slots begin with the longest beginning of its
  // prompt (and prior ids) that is at hand.
  void Find(LiveRequest& request);

  // The slot of `output` stands at a boundary. `is_prompt`: it ran the prompt
  // of all outputs up to there. REQUIRES: no Keep() is due.
  void Visit(LiveRequest& request, LiveOutput& output, bool is_prompt);

  // The request is done.
  void Drop(const LiveRequest& request);

 private:
  bool HasCheckpoints(const Request& request) const;
  // Moves the key on to the boundary, chunk by chunk.
  void MoveKey(LiveRequest& request, const LiveOutput& output,
               size_t num_chunks) const;

  const EngineOptions& options_;
  LanguageModel& model_;
};

}  // namespace flash

#endif  // SERVER_SCHEDULER_BOUNDARY_STATES_H_
