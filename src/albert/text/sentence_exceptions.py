"""Full stops that end no sentence although sentencex takes them for its end: abbreviations, ordinal numbers, initials.

sentencex has lists of its own, which have gaps for languages other than English. What is here was found by trying the
ordinary abbreviations of each language. What sentencex does not divide, as "etc." before a capital, stays whole.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True)
class Exceptions:
    """The exceptions of a language.

    Attributes:
        always: what stands before the full stop of an abbreviation that never ends a sentence, such as a title.
        before_lower: of abbreviations that may end one: they do not before a small letter or a figure.
        ordinals: a number before a full stop is an ordinal, if a small letter follows.
        determiners: German and its like, whose nouns begin with a capital: a number of at most three digits after one
            of these words is an ordinal as well, unless a word of `starters` follows.
        roman: so is a Roman number, before any word.
        initials: a single capital is an initial, unless a word of `starters` follows.
        starters: words that often begin a sentence, and are no name.
        dates: a sentence of at most four words that begins with one of these goes on after an abbreviation for "year"
            or "century" (`date_marks`), also before a capital.
        letters: a short word in a script without capitals that is the name of a letter, as in initials.
    """

    always: frozenset[str] = frozenset()
    before_lower: frozenset[str] = frozenset()
    ordinals: bool = False
    determiners: frozenset[str] = frozenset()
    roman: bool = False
    initials: bool = True
    starters: frozenset[str] = frozenset()
    dates: frozenset[str] = frozenset()
    date_marks: frozenset[str] = frozenset()


_GERMAN = Exceptions(
    always=_words(
        """Fa Hr Hrn Fr Frl Dr Prof Dipl Hl hl St Sr Jr Abg Gebr Nr Bd Bde Abb Tab Anm Abs Ziff Aufl Hrsg hrsg vgl
        Vgl bzw sog sogen z zz Zt ca einschl inkl exkl zzgl max min geb gest verh gegr Jh Mio Mrd Tsd Str Pl Tel
        evtl ggf i d u o lt gem bes insb insbes od ff Mitw urspr mhd ahd lat griech frz engl dt ital österr
        schweiz röm kath ev jüd sen jun Lt Ltn Oblt Hptm Maj Kpt Mt Bf Verf Übers Gr"""
    ),
    before_lower=_words(
        """Art Kap Gen Mag usw etc ff u.a s.o s.u m.E Chr v.Chr n.Chr Std Min Sek Jan Feb Apr Aug Sept Okt Nov Dez
        Jhd Jhs"""
    ),
    ordinals=True,
    determiners=_words(
        """der die das dem den des im am zum zur vom beim ins ans ein eine einen einem einer eines und bis oder
        sowie ab seit nach vor mein meine meinem meinen meiner sein seine seinem seinen seiner ihr ihre ihrem
        ihren ihrer unser unsere unserem unseren unserer dein deine deinem deinen deiner jede jeder jedes jeden
        jedem diese dieser dieses diesen diesem jene jener jenes jenen jenem aus aufs fürs übers dessen deren"""
    ),
    roman=True,
    starters=_words(
        """Der Die Das Er Sie Es Wir Ich Ihr Du Man Ein Eine Einer Einen Eines Dann Danach Da Dort Dies Diese
        Dieser Dieses Und Aber Oder Doch Denn Auch Als Am An Auf Aus Bei Bis Damals Dabei Dazu Dafür Daher Durch
        Für In Im Mit Nach Nun Ob Seit So Um Unter Von Vor Wenn Weil Wer Was Wie Wo Während Zu Zum Zur Zwar Sein
        Seine Ihre Mein Kein Keine Nicht Nur Noch Schon Sogar Später Trotzdem Viele Einige Alle Jeder Jede Hier
        Heute Jetzt Zunächst Zuerst"""
    ),
)
_CZECH = Exceptions(
    always=_words(
        """např tzv tj tzn resp popř sv Sv p pí Dr dr Mgr mgr Ing ing Bc JUDr MUDr PhDr RNDr doc Doc prof Prof gen
        Gen plk kpt por mjr čs č čj str s odst ul tř obr tab kap srov viz cca ca aj"""
    ),
    before_lower=_words("atd apod aj r st stol tis mil mld hod min sek kol ř a.s s.r.o n.l př kr Kr"),
    ordinals=True,
    roman=True,
    starters=_words(
        """Ten Ta To On Ona Ono Oni V Ve Na Po Pak Potom Ale A I Když Jeho Její Od Do Za Při Byl Byla Bylo"""
    ),
)
_NORDIC_STARTERS = _words(
    """Den Det De Han Hun Hon Vi Jeg Jag Eg En Et Ett Ein I På Og Och Men Da Då Der Dette Denne Når När Etter Efter
    Før Siden Så Som Hans Hennes Hendes Under Ved Vid Til Till Fra Från Med For För Av Af Om Ho"""
)
_NORWEGIAN = Exceptions(
    always=_words(
        """f.eks t.d bl.a dvs d.v.s jf jfr nr kl ca pga p.g.a mht m.h.t ift iht hhv evt inkl ekskl maks st St Dr dr
        Prof prof hr Hr fru frk kap fig sml s pkt tlf adr avd red utg gl"""
    ),
    before_lower=_words(
        """tab osv o.l m.m m.fl mv m.v etc e.l o.a mill mrd årh f.Kr e.Kr Kr jan feb mars apr aug sept okt nov des"""
    ),
    ordinals=True,
    roman=True,
    starters=_NORDIC_STARTERS,
)
_SOUTH_SLAVIC = Exceptions(
    always=_words(
        """npr Npr tj Tj tzv dr Dr mr Mr prof Prof sv Sv g gđa gosp str br čl ul tel odn usp cca ing Ing akad doc dipl
        gen puk ibid op cit t.i t.j tzn ml st"""
    ),
    before_lower=_words("itd sl itn dr god g st stoljeća pr.Kr Kr n.e pr n mil mlrd tis ipd idr"),
    ordinals=True,
    roman=True,
    starters=_words(
        """On Ona Ono Oni To Taj Ta U Na I A Ali Kad Kada Nakon Poslije Od Do Za Po V Potem Tako Bio Bila"""
    ),
)

EXCEPTIONS: dict[str, Exceptions] = {
    "de": _GERMAN,
    "lb": _GERMAN,
    "fr": Exceptions(
        always=_words(
            """M MM Mme Mmes Mlle Mlles Dr Drs Pr Me Mes Mgr St Ste Sts Cie Ets av apr p pp ex cf Cf chap fig fol
            env éd tél n no N No Vve Mal Gal Col Cap Lt Cdt bd Bd bld boul pl sq fg dép arr hab t liv ms mss sc
            réf chr trad coll dir illus conf ibid op cit suiv ap ca m.à"""
        ),
        before_lower=_words(
            """art vol col tom etc J.-C JC C suiv s sq qq env min sec h inv ann app janv févr avr juil sept oct nov
            déc"""
        ),
        starters=_words(
            """Il Elle Ils Elles On Le La Les Un Une Des Ce Cet Cette Ces Je Tu Nous Vous Mais Et Ou Puis Alors En
            Dans À A Au Aux Par Pour Sur Sous Avec Sans Après Avant Depuis Son Sa Ses Leur Leurs Mon Ma Mes Qui
            Que Quand Si Comme Ainsi Aussi Cependant Toutefois Selon Lors De Du Voilà Bon Oui Non Ici Tout Toute
            Tous C'est C’est"""
        ),
    ),
    "cs": _CZECH,
    "sk": Exceptions(
        always=_CZECH.always | _words("tzv resp napr t.j tzn Ing Mgr MUDr JUDr PhDr p pán doc sv"),
        before_lower=_CZECH.before_lower | _words("atď a pod stor tis"),
        ordinals=True,
        roman=True,
        starters=_CZECH.starters | _words("Táto Tento Bol Bola Bolo Vo Zo So"),
    ),
    "no": _NORWEGIAN,
    "nb": _NORWEGIAN,
    "nn": _NORWEGIAN,
    "da": Exceptions(
        always=_NORWEGIAN.always | _words("fx Fx ang mht jvf Jvf skt Skt"),
        before_lower=_NORWEGIAN.before_lower | _words("dec fvt evt ff"),
        ordinals=True,
        determiners=_words("den det de og til"),
        roman=True,
        starters=_NORDIC_STARTERS,
    ),
    "sv": Exceptions(
        always=_words(
            """t.ex T.ex bl.a d.v.s dvs s.k f.d p.g.a pga kl nr ca st S:t Dr dr Prof prof jfr inkl exkl resp fr.o.m
            t.o.m m.a.o sid s kap fig tab red övers tel f.ö t.v"""
        ),
        before_lower=_words(
            """osv o.s.v m.m m.fl etc o.d e.d f.Kr e.Kr Kr milj mdkr jan febr mars apr aug sept okt nov dec"""
        ),
        ordinals=True,
        starters=_NORDIC_STARTERS,
    ),
    "fi": Exceptions(
        always=_words(
            """esim Esim ts ks Ks vrt Vrt nk ns tri toht prof Prof hra Hra rva s n synt os puh mm kpl tk"""
        ),
        before_lower=_words("jne ym yms ynnä jms eKr jKr tms milj mrd klo v"),
        ordinals=True,
        roman=True,
        starters=_words("Hän He Se Ne Tämä Nämä Ja Mutta Kun Jos Niin Sitten Siellä Vuonna Myös Koska"),
    ),
    "et": Exceptions(
        always=_words("nt st nn prof dr Dr hr pr lk vt Vt s sünd u ca nr tel"),
        before_lower=_words("jne jm jt eKr pKr aastal a saj sajandil"),
        ordinals=True,
        roman=True,
        starters=_words("Ta Tema See Need Ja Aga Kui Siis Ka"),
    ),
    "lv": Exceptions(
        always=_words("piem t.i t.s prof Prof dr Dr sk Sk nr Nr ap kgs Sv sv"),
        before_lower=_words("utt u.c u.tml g gs p.m.ē m.ē tūkst milj"),
        ordinals=True,
        starters=_words("Viņš Viņa Tas Tā Un Bet Kad"),
    ),
    "lt": Exceptions(
        always=_words("pvz Pvz t.y y prof Prof dr Dr vad žr Žr g nr Nr šv Šv vysk kun"),
        before_lower=_words("m d a amž pr kt t.t pan tūkst mln Kr"),
        starters=_words("Jis Ji Tai Tas Ir Bet Kai"),
    ),
    "is": Exceptions(
        always=_words("t.d þ.e m.a þ.á.m u.þ.b sbr nr Nr dr Dr prof sr Sr hr Hr bls"),
        before_lower=_words("o.s.frv o.fl f.Kr e.Kr"),
        ordinals=True,
        starters=_words("Hann Hún Það Þeir En Og Þá"),
    ),
    "hu": Exceptions(
        always=_words(
            """pl Pl ld Ld dr Dr ifj Ifj id Id özv Özv prof Prof sz Szt szt ún kb Kb vö Vö tkp old ford szerk ui
            uo St"""
        ),
        before_lower=_words("stb ill évf u köv jan febr márc ápr aug szept okt nov dec e n"),
        ordinals=True,
        roman=True,
        starters=_words("Ez Az A Ő Ők És De Ha Mert Majd Ezután Aztán Így Itt Ott Igen"),
    ),
    "pl": Exceptions(
        always=_words(
            """m.in np Np tj Tj tzn tzw prof Prof dr Dr hab mgr inż ks Ks św Św bp Bp abp Abp gen Gen płk ppłk mjr
            kpt por ppor sierż ul al pl pow woj gm os zob Zob Por red tłum wyd t s str nr poz tab art pkt ok ang
            niem fr łac franc ros gr ur zm p pp ob tow"""
        ),
        before_lower=_words("ust rys r w itd itp in n.e p.n.e zł gr godz min sek tys mln mld ww jw"),
        ordinals=True,
        starters=_words(
            """On Ona Ono Oni One To Ten Ta Te W We Na I A Ale Lecz Gdy Kiedy Po Potem Od Do Za Przed Przy Z Ze O
            Był Była Było Byli Jego Jej Ich Jest Nie Tak Już Tam Tu Wtedy"""
        ),
        dates=_words("W We Od Do Po Przed Dnia Na Około Ok Koło Pod Przez Już Dopiero"),
        date_marks=_words("r w"),
    ),
    "tr": Exceptions(
        always=_words(
            """örn Örn Dr Prof Doç Yrd Av Sn Alb Yzb Org bkz Bkz yy çev haz Hz No Nr Cad Sok Mah Apt M.Ö M.S Öğr
            Arş Gör"""
        ),
        before_lower=_words("vb vs vd ör yk s"),
        ordinals=True,
        roman=True,
        starters=_words("O Bu Şu Onlar Ve Ama Fakat Sonra Daha Bir Ancak"),
    ),
    "es": Exceptions(
        always=_words(
            """Sr Sra Srta Sres Sras D Dª Dña Dr Dra Drs Prof Profa Lic Ing Arq Gral Cnel Cap Tte Sto Sta S Fr Mons
            Ud Uds Vd Vds pág págs p pp cap art núm n vol ed Ed fig tel av Av avda Avda ej p.ej cf cfr vid aprox
            ca c EE S.M Excmo Excma Ilmo Ilma Rvdo Hno"""
        ),
        before_lower=_words("etc a.C d.C C JC UU ss cía Cía hab kg km min"),
        starters=_words(
            """El La Los Las Un Una Unos Unas Él Ella Ellos Ellas Yo Tú Nosotros Lo Le Se Su Sus Y O Pero Mas En
            Con Por Para Sin Sobre De Del Al A Tras Desde Hasta Cuando Si Como Que Este Esta Esto Estos Estas
            Ese Esa Aquel Ya No Sí Así Aunque Entonces Luego Después También Bien Fin"""
        ),
    ),
    "ca": Exceptions(
        always=_words("Sr Sra Srta Dr Dra Prof D St Sta S pàg p pp núm fig ex av Av Mn Mons cf"),
        before_lower=_words("cap vol art etc a.C d.C C aC dC"),
        starters=_words(
            """El La Els Les Un Una Ell Ella I Però En Amb Per De Del Al A Quan Si Com Aquest Aquesta No"""
        ),
    ),
    "it": Exceptions(
        always=_words(
            """Sig Sigg sig sigg dott Dott dr Dr prof Prof ing Ing avv Avv arch Arch geom on On mons Mons S SS s ss
            pag pagg p pp cap art artt n nn vol voll fig figg tav ed Ed cfr Cfr es v vv ca sec sen Sen gen Gen
            ten mar fr rag p.es tel"""
        ),
        before_lower=_words("ecc etc a.C d.C C seg segg cit"),
        starters=_words(
            """Il Lo La I Gli Le Un Uno Una Egli Ella Essi Lui Lei Loro Io Noi E Ed O Ma Però In Nel Nella Con Per
            Da Dal Dalla Di Del Della A Al Alla Su Sul Tra Fra Quando Se Come Che Chi Questo Questa Quello Poi
            Dopo Così Anche Non Sì Già È Era Fu"""
        ),
    ),
    "pt": Exceptions(
        always=_words(
            """Sr Sra Srs Sras Srta D Dr Dra Prof Profa Exmo Exma Ilmo Ilma Eng Engº Gen Cel Cap Ten Sto Sta S Fr
            Frei Pe Mons pág págs p pp cap art n nº núm vol ed fig tel av Av R ex p.ex cf Cf aprox ca V"""
        ),
        before_lower=_words("etc a.C d.C C séc segs cia Cia hab"),
        starters=_words(
            """O A Os As Um Uma Ele Ela Eles Elas Eu Nós E Ou Mas Em No Na Nos Nas Com Por Para Sem Sob Sobre De Do
            Da Dos Das Ao À Após Desde Até Quando Se Como Que Este Esta Isto Esse Essa Isso Aquele Já Não Sim
            Assim Embora Então Depois Também Fim"""
        ),
    ),
    "nl": Exceptions(
        always=_words(
            """dhr Dhr mevr Mevr mw Mw mej drs Drs dr Dr prof Prof ir ing mr Mr ds Ds pater St st nr nrs blz p pp
            bijv Bijv bv Bv d.w.z dwz zgn zg o.a m.n i.p.v i.v.m t.o.v n.a.v ca resp vgl Vgl hfst art fig vert
            afb gen kol lt"""
        ),
        before_lower=_words("enz etc e.d e.a v.Chr n.Chr Chr a.s jl mld mln"),
        starters=_words(
            """De Het Een Hij Zij Ze Wij We Ik Jij Je U Er Dit Dat Deze Die En Maar Of Want In Op Met Voor Na Naar
            Van Uit Bij Door Toen Als Dan Daar Hier Zijn Haar Hun Ook Niet Nu Om Tot Klaar Ja Nee"""
        ),
    ),
    "ro": Exceptions(
        always=_words(
            """dl Dl dna Dna d-na D-na d-l D-l dr Dr prof Prof ing Ing acad Gen sf Sf str nr pag p ex cca cf v vol
            ed Şt Șt"""
        ),
        before_lower=_words("cap gen col art etc ş.a ș.a î.Hr d.Hr Hr sec min mil ş.a.m.d ș.a.m.d"),
        starters=_words("El Ea Ei Ele Acest Această În La Pe Cu De Din Şi Și Dar Când Un O Da Nu"),
    ),
    "ru": Exceptions(
        always=_words(
            """г-н г-жа гг ул пр пл пер проф акад доц тов гр ген см См ср Ср напр Напр т стр с табл гл п пп ст св
            Св о-в обл р-н дер пос англ нем фр лат греч итал ок яз"""
        ),
        before_lower=_words("рис род г в вв гг др пр т.д т.п е э н.э д н тыс млн млрд руб коп мин час ч"),
        initials=True,
        starters=_words(
            """Он Она Оно Они Я Мы Вы Ты Это Этот Эта Эти Тот В Во На И А Но С Со К Ко По Из От До За При После
            Когда Если Как Что Его Её Ее Их Так Там Тут Уже Не Да Затем Потом"""
        ),
    ),
    "uk": Exceptions(
        always=_words(
            """вул пл просп пров ім проф акад доц див Див пор напр Напр стор с рис табл гл п пп ст св Св обл р-н
            англ нім фр лат"""
        ),
        before_lower=_words("р рр ст в вв ін т.д т.п н.е е д тис млн млрд грн зв"),
        starters=_words(
            """Він Вона Воно Вони Я Ми Ви Це Цей Ця У В На І Й А Але З Зі До За Після Коли Якщо Як Що Його Її Їх
            Так"""
        ),
    ),
    "el": Exceptions(
        always=_words("κ κκ κα Δρ δρ Π.χ π.χ δηλ Αγ αγ αρ σελ βλ Βλ πρβλ καθ Καθ χλμ τηλ οδ"),
        before_lower=_words("κ.λπ κλπ κ.ά π.Χ μ.Χ Χ"),
        starters=_words(
            """Ο Η Το Οι Τα Ένας Μια Μία Αυτός Αυτή Αυτό Και Αλλά Στο Στη Με Για Από Όταν Αν Ναι Όχι"""
        ),
    ),
    "ar": Exceptions(always=_words("د أ ص ج")),
    "hi": Exceptions(
        always=_words(
            """श्री श्रीमती सुश्री कु डॉ डा पं प्रो प्रा स्व सं पृ क्र रु मि मा ले कर्नल जन इं एड ए बी सी डी एफ जी
            एच आई जे के एल एम एन ओ पी क्यू आर एस टी यू वी डब्ल्यू एक्स वाई जेड ज़ेड ई उ मो मौ अ"""
        ),
        initials=True,
    ),
    "mr": Exceptions(
        always=_words(
            """श्री श्रीमती सौ कु डॉ डा पं प्रो प्रा स्व सं पृ क्र रु मि मा ए बी सी डी एफ जी एच आय जे के एल एम एन ओ
            पी आर एस टी यू व्ही इ स ह भ ग"""
        )
    ),
    "ne": Exceptions(always=_words(
        """श्री श्रीमती डा डॉ पं प्रा प्रो स्व नं पृ वि सं रु कि मि ए बी सी डी एस पी के"""
    )),
    "bn": Exceptions(always=_words("ড ডঃ ডা মি মিসেস মো মোঃ প্রফ অধ্যাপক নং পৃ সং রু বি এ এস পি কে এম সি ডি")),
    "ta": Exceptions(always=_words(
        """திரு திருமதி செல்வி டாக்டர் பேரா எண் பக் கி மு பி சி எம் கே ஆர் எஸ் ஜி வி டி என்"""
    )),
    "id": Exceptions(
        always=_words("Jl Jln jl Dr dr Drs Prof Ir Tn Ny Nn Sdr Sdri Bpk Hj H Yth No hlm hal a.n u.p d.a s.d"),
        before_lower=_words("dll dsb dst dkk tgl ttd M SM"),
        starters=_words("Ia Dia Mereka Kami Kita Saya Ini Itu Dan Tetapi Namun Di Pada Dari Setelah Ketika Ya"),
    ),
    "vi": Exceptions(always=_words("TP Tp TS ThS GS PGS Ths BS KS Th.S P Q TT Ts"),
    starters=_words("Ông Bà Anh Chị Họ Nó Và Nhưng Khi Tại Trong")),
}  # fmt: skip
EXCEPTIONS["ms"] = EXCEPTIONS["id"]
for _code in ("hr", "sr", "bs", "sh", "sl", "mk"):
    EXCEPTIONS[_code] = _SOUTH_SLAVIC

_OPENING = "([{„“”\"'«»‘’‹›—–-"
_NUMBER = re.compile(r"\d+")
_GLUED = re.compile(r"-[^\W\d_]\.|[^\W\d_]\.|[^\W\d_A-Z]")
"""What follows the first full stop of J.-C., a.C. and f.eks without a blank."""
_JOINED_INITIALS = re.compile(r"[^\W\d_]\.-[^\W\d_]")
"""J.-J, before the last full stop of "J.-J. Rousseau"."""
_ELISION = re.compile(r"[^\W\d_]{1,5}['’](?=[^\W\d_])")
"""The article before an abbreviation, as in "l'art. 3" and "dell'avv. Rossi"."""
_QUOTE_LEFT = re.compile(r"(?<=\s)['’‘]$")
"""An apostrophe or a quote that begins the next sentence, as in "'t Is laat"."""
_WHO_SPEAKS = re.compile(r"[—–―-]\s?[^\W\d_]")
"""A dash and the words that name the speaker: "— Gdzie? — zapytał Jan."."""
_ROMAN = re.compile(r"[IVXLC]+")
_LIST_NUMBER = re.compile(r"(?:\d{1,3}|[A-Za-z]|[IVXLCivxlc]{1,6})[.)]")
_STOPS_LEFT = re.compile('[។៕᙮᠃᠉꧉꘎꛳꯫᪨᭞᭟᱾༎།](?:["”»’)]*\\s*)')
"""Ends of sentences in scripts that sentencex does not know: Khmer, Tibetan, Mongolian, Javanese and others."""


def join_at_exceptions(pieces: Iterable[str], exceptions: Exceptions) -> Iterator[str]:
    """Join the pieces of a paragraph where the full stop between two of them ends no sentence.

    Args:
        pieces: with their blanks; together they are the paragraph.
    """
    sentence = ""
    for piece in pieces:
        if sentence and not _goes_on(sentence, piece, exceptions):
            yield sentence
            sentence = ""
        sentence += piece
    if sentence:
        yield sentence


def join_speech(pieces: Iterable[str]) -> Iterator[str]:
    """Join a question or an exclamation with who speaks it, and an apostrophe with the word that it begins."""
    sentence = ""
    for piece in pieces:
        if sentence and _QUOTE_LEFT.search(sentence) and piece[:1].isalpha():
            piece = sentence[-1] + piece
            sentence = sentence[:-1]
        if sentence:
            speaker = _WHO_SPEAKS.match(piece)
            names_the_speaker = speaker is not None and speaker.group()[-1].islower()
            if not (names_the_speaker and sentence.rstrip().endswith(("?", "!", "…", "..."))):
                yield sentence
                sentence = ""
        sentence += piece
    if sentence:
        yield sentence


def split_at_other_stops(piece: str) -> list[str]:
    """Divide a piece at marks that end a sentence and that sentencex does not know."""
    ends = [match.end() for match in _STOPS_LEFT.finditer(piece)]
    starts = [0, *ends]
    return [piece[start:end] for start, end in zip(starts, [*ends, len(piece)], strict=True) if start < end]


def has_other_stops(paragraph: str) -> bool:
    """Return whether a paragraph has marks that sentencex does not know."""
    return _STOPS_LEFT.search(paragraph) is not None


def _goes_on(sentence: str, following: str, exceptions: Exceptions) -> bool:
    before = sentence.rstrip()
    if not before.endswith((".", ")")):
        return False
    if _LIST_NUMBER.fullmatch(before):
        return True
    if before.endswith((")", "..")):
        return False
    next_text = following.lstrip().lstrip(_OPENING).lstrip()
    if not next_text:
        return False
    small = next_text[0].islower()
    figure = next_text[0].isdigit()
    begin = max(before.rfind(" "), before.rfind("\u00a0"), before.rfind("\u202f")) + 1
    word = _ELISION.sub("", before[begin:-1].lstrip(_OPENING), count=1)
    if not word:
        return False
    if len(before) == len(sentence) and len(word) <= 3 and _GLUED.match(following):
        return True
    if word in exceptions.always:
        return True
    if (small or figure) and word in exceptions.before_lower:
        return True
    if small and "." in word and not word[0].isdigit():
        return True
    next_word = next_text.split(maxsplit=1)[0].rstrip(",;:.!?")
    if _NUMBER.fullmatch(word):
        if not exceptions.ordinals:
            return False
        if small:
            return True
        # An ordinal number before a noun: "im 19. Jahrhundert", but not "Er ist 19. Sie ist 20."
        if not exceptions.determiners or len(word) > 3 or next_word in exceptions.starters:
            return False
        words = before[:begin].split()
        return bool(words) and words[-1].lower().lstrip(_OPENING) in exceptions.determiners
    if exceptions.roman and len(word) > 1 and _ROMAN.fullmatch(word):
        return small or next_word not in exceptions.starters
    if exceptions.initials and word.isupper() and (len(word) == 1 or _JOINED_INITIALS.fullmatch(word)):
        return next_word not in exceptions.starters
    if word in exceptions.date_marks:
        words = before.split()
        return len(words) <= 4 and words[0] in exceptions.dates
    return False
