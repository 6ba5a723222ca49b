import { createContext } from "preact";
import { useContext } from "preact/hooks";
import { may } from "./call";
import type { Caller } from "./types";

export interface Session {
  caller: Caller;
  reload: () => Promise<void>;
}

export const SessionContext = createContext<Session>({ caller: {}, reload: async () => undefined });

export const useSession = () => useContext(SessionContext);

// useMay reports whether the caller may call a method, such as "Leaders/Resign".
export function useMay(method: string): boolean {
  return may(useSession().caller, method);
}
