#include "client/client_commands.h"

namespace flash {

std::vector<Command> ClientCommands() {
  return {
      {"generate",
       "flash-client generate [flags]: continues a prompt, as it is made.\n\n"
       "  flash-client generate --prompt='In the beginning' "
       "--max_tokens=100\n\n"
       "If the server or the connection to it is lost in the middle, the text "
       "goes on\nat the next of --server, bit for bit, and the standard error "
       "says so. With\n--save_session what was read and written is kept on the "
       "server; --session goes\non from there, and nothing of it is sent or "
       "computed again:\n\n"
       "  flash-client generate --prompt_file=book.txt --max_tokens=0 "
       "--save_session\n"
       "  flash-client generate --session=ID --session_unchanged "
       "--prompt=$'\\nQ: Who?\\nA:'"},
      {"score",
       "flash-client score [flags]: tells how likely each token of a text is.\n"
       "\n  flash-client score --text='The Lord is my shepherd' "
       "--output=json"},
      {"info",
       "flash-client info [flags]: tells what the server has and how it is "
       "doing."},
      {"chat",
       "flash-client chat [flags]: says lines in turn with the model.\n\n"
       "Each line of the standard input is appended to one session, and the "
       "answer is\nprinted as it is made. An empty line lets the model go on. "
       "Ctrl-C cancels the\nanswer: the session stays as it was before the "
       "line. Ctrl-D ends, and says how to\ngo on another time.\n\n"
       "--prefix, --suffix and --stop are the form that the model has learned; "
       "without\nthem it continues the text:\n\n"
       "  flash-client chat --max_tokens=60\n"
       "  flash-client chat --prefix=$'\\nQ: ' --suffix=$'\\nA:' "
       "--stop=$'\\nQ:'"},
      {"session save",
       "flash-client session save [flags]: keeps the text of a request.\n\n"
       "  flash-client session save --request_id=ID\n\n"
       "The request runs (and goes on), or has finished a short while ago. ID "
       "is that of\ngenerate's --request_id, or of the server's log."},
      {"session get",
       "flash-client session get [flags]: tells about a session.\n\n"
       "  flash-client session get --session=ID"},
      {"session list",
       "flash-client session list [flags]: tells about all your sessions."},
      {"session fork",
       "flash-client session fork [flags]: makes new sessions of one's "
       "text.\n\n"
       "  flash-client session fork --session=ID --count=10\n\n"
       "Each goes on by itself. They cost next to nothing until they do."},
      {"session export",
       "flash-client session export [flags]: writes a session to a file.\n\n"
       "  flash-client session export --session=ID --file=talk.session\n\n"
       "The file is there when it is whole, and not before. Its size does not "
       "depend on\nthe text's length."},
      {"session import",
       "flash-client session import [flags]: makes a session of such a "
       "file.\n\n"
       "  flash-client session import --file=talk.session\n\n"
       "On this server or another one, with the same model and the same "
       "numerics: what\nfollows has the same bits."},
      {"session delete",
       "flash-client session delete [flags]: forgets a session.\n\n"
       "  flash-client session delete --session=ID"},
      {"session pin",
       "flash-client session pin [flags]: sets how long a session lives.\n\n"
       "  flash-client session pin --session=ID --time_to_live=168h"}};
}

}  // namespace flash
