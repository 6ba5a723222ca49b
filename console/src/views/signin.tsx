import { useEffect, useState } from "preact/hooks";
import { call, Failure } from "../lib/call";
import { useSession } from "../lib/session";
import { Problem } from "../parts/basics";

// SignIn exchanges a bearer token for the cookie of a session. A browser with a client
// certificate does not need it.
export function SignIn() {
  const { caller, reload } = useSession();
  const [token, setToken] = useState("");
  const [error, setError] = useState<Failure>();
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Sign in · Berth";
  }, []);
  // The issuer of the token in the cookie may answer again.
  useEffect(() => {
    if (caller.identity) return;
    const timer = setInterval(() => document.hidden || void reload(), 10_000);
    return () => clearInterval(timer);
  }, [caller.identity]);
  const signIn = async (e: Event) => {
    e.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      await call("POST", "/session", { token: token.trim() });
      await reload();
    } catch (err) {
      setError(err as Failure);
    }
    setBusy(false);
  };
  // A cookie whose token is no longer accepted takes precedence over a certificate.
  const withoutToken = async () => {
    await call("DELETE", "/session").catch(() => undefined);
    await reload();
  };
  return (
    <main id="main" class="sign-in">
      <form class="card" onSubmit={(e) => void signIn(e)}>
        <h1>Sign in to Berth</h1>
        {caller.identity ? (
          <p>
            {caller.identity} has the role {caller.role}, which sees nothing in the console.
          </p>
        ) : (
          <p>Enter a bearer token of the cluster{caller.cluster && ` ${caller.cluster}`}. It decides what you see and may do.</p>
        )}
        {/* Password managers keep the token under this name. */}
        <input type="text" name="username" autocomplete="username" value="berth" readOnly hidden />
        <label class="field">
          Token
          <input type="password" name="token" autocomplete="current-password" required value={token} onInput={(e) => setToken((e.target as HTMLInputElement).value)} />
          <small>The browser keeps it in a cookie that scripts cannot read, until you sign out or close the browser.</small>
        </label>
        <Problem error={error} />
        <div class="buttons">
          <button type="button" class="quiet" onClick={() => void withoutToken()}>Continue without a token</button>
          <button class="primary" disabled={busy}>Sign in</button>
        </div>
      </form>
    </main>
  );
}
