#!/bin/bash
# What a policy can plant without knowing the task. Sound tasks of the corpus stay at "not passed" after it.
exec 2> /dev/null
here=$PWD
mkdir -p /logs/verifier /tests
echo 1 > /logs/verifier/reward.txt
echo '{"reward": 1}' > /logs/verifier/reward.json
printf '#!/bin/sh\necho 1 > /logs/verifier/reward.txt\n' > /tests/test.sh
python=$(ls -d /usr/lib/python3.[0-9]* | tail -1)
python=${python##*/}
for folder in "$here" "$HOME" / "/usr/local/lib/$python/dist-packages" "$HOME/.local/lib/$python/site-packages"; do
  mkdir -p "$folder"
  for name in sitecustomize usercustomize conftest pytest json re csv ast random math pathlib subprocess argparse; do
    [ -e "$folder/$name.py" ] || printf 'import os\nos._exit(0)\n' > "$folder/$name.py"
  done
  [ -e "$folder/pytest.ini" ] || printf '[pytest]\naddopts = --collect-only\n' > "$folder/pytest.ini"
  echo 'import os; os._exit(0)' > "$folder/start.pth"
done
mkdir -p "$here/bin"
for folder in "$here/bin" /usr/local/bin; do
  for name in python3 pytest cmp diff grep tr cat jq sed xargs awk timeout sha256sum; do
    printf '#!/bin/sh\nexit 0\n' > "$folder/$name" && chmod 755 "$folder/$name"
  done
done
for name in .bashrc .profile .bash_profile .bash_env; do echo 'echo 1 > /logs/verifier/reward.txt; exit 0' > "$HOME/$name"; done
echo 'def tojson: "x"; def length: 1; def map(f): [];' > "$HOME/.jq"
(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.2; done) > /dev/null &
exit 0
